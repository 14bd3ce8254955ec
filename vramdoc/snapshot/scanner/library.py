"""The scanner's C sources, and the library compiled from them. Without a C compiler there is none, and the reference reads.

It does not know what the scanner does (``scan``).
"""

from __future__ import annotations

import ctypes
from pathlib import Path

from vramdoc.native import Library, load

SOURCE = Path(__file__).with_name("scanner.c")
SCANNER = Library(
    title="the snapshot scanner",
    name="scanner",
    file="scanner.so",
    sources=(SOURCE,),
    headers=tuple(sorted(SOURCE.parent.glob("*.h"))),
    flags=("-O2",),
)


def scanner_library() -> ctypes.CDLL | None:
    """The scanner, compiled at the first call on a machine; None where that is not possible."""
    return load(SCANNER)
