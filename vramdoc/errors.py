"""The exception tree. Every error has one line that says what is wrong and a hint that says what to do.

VramdocError
├── UsageError            a flag, a config string, a GPU name that cannot be used
├── UnreadableInput       a file that is missing, truncated, hostile or not what it claims to be
│   └── Contradiction     a trace or snapshot that contradicts itself, named at its first contradiction
├── MissingDependency     torch, a C compiler, an extra; the hint is the command that installs it
├── DeviceUnavailable     the GPU asked for cannot be had on this machine
├── StorageProblem        the recording cannot be written (no space, read-only folder)
└── ChildProblem          the recorded program could not be started or left nothing behind

Only ``cli`` catches these; it prints message and hint and exits 2.
"""

from __future__ import annotations


class VramdocError(Exception):
    """An expected failure: what is wrong (``message``) and what to do about it (``hint``)."""

    def __init__(self, message: str, hint: str = "") -> None:
        super().__init__(message)
        self.message = message
        self.hint = hint

    def __str__(self) -> str:
        return f"{self.message}; {self.hint}" if self.hint else self.message


class UsageError(VramdocError):
    """A flag, config string or name that cannot be used."""


class UnreadableInput(VramdocError):
    """A file that is missing, truncated, hostile or not what it claims to be."""


class Contradiction(UnreadableInput):
    """A trace or snapshot that contradicts itself."""


class MissingDependency(VramdocError):
    """Something that must be installed first."""


class DeviceUnavailable(VramdocError):
    """The GPU asked for cannot be had on this machine."""


class StorageProblem(VramdocError):
    """A recording or report that cannot be written."""


class ChildProblem(VramdocError):
    """The recorded program could not be started or left nothing behind."""
