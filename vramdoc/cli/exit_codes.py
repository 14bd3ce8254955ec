"""The exit codes. They are never renumbered (docs and CI scripts hold them)."""

from __future__ import annotations

from enum import IntEnum


class ExitCode(IntEnum):
    """What the process's exit status says."""

    HEALTHY = 0
    FINDINGS = 1
    USAGE = 2
    """Wrong usage or unreadable input."""
    UNDECIDED = 3
    """The input was read, and could not decide."""
    INTERRUPTED = 130
