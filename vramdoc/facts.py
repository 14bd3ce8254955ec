"""Facts: one measured quantity, where it came from and where to look it up. Measured here means known, never judged.

This module does not know which facts exist; ``evidence`` makes them, ``diagnose`` cites them, ``report`` shows them.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum


class Source(str, Enum):
    """Where a number comes from, strongest first. It is part of the number and printed with it."""

    MEASURED = "measured"
    """Measured on a real device."""
    VIRTUAL_GPU = "virtual GPU"
    """PyTorch's own allocator on a virtual GPU."""
    REPLAYED = "replayed"
    """The recorded requests put through the simulator or the allocator under another config."""
    READ = "read"
    """Read from the person's own message, file or snapshot."""
    ESTIMATED = "estimated"
    """Computed from a formula; the weakest."""

    def __str__(self) -> str:
        return self.value


@dataclass(frozen=True, slots=True)
class Fact:
    """One quantity. ``name`` is a stable snake_case key; ``where`` says where to look it up."""

    name: str
    value: int | float | str | bool
    unit: str
    """``"bytes"``, ``"count"``, ``"ratio"``, ``"seconds"``, ``"text"`` or ``"flag"``."""
    source: Source
    where: str = ""
