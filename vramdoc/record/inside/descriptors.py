"""File descriptors that a recorder keeps open in somebody's program: out of the program's way.

A program that closes "all" descriptors and opens its own files gets the lowest numbers again. What the recorder still writes to must
not be one of them.
"""

from __future__ import annotations

import os

_LOWEST = 500
"""Below the usual limit of 1024, above what programs have open."""


def out_of_the_way(descriptor: int) -> int:
    """Move an open descriptor to a high number, not inherited by programs; it stays where it is if that cannot be done."""
    try:
        import fcntl

        moved = fcntl.fcntl(descriptor, fcntl.F_DUPFD_CLOEXEC, _LOWEST)
    except (ImportError, OSError):  # Windows; a lower limit
        return descriptor
    os.close(descriptor)
    return moved
