"""The four levels of memory (requested <= allocated <= active <= reserved), over time and at peak. Measured, never judged."""

from __future__ import annotations

from dataclasses import dataclass

from vramdoc.facts import Source


@dataclass(frozen=True, slots=True, kw_only=True)
class Levels:
    """Bytes of one device at one moment."""

    requested: int
    allocated: int
    active: int
    reserved: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Usage:
    """Usage of one device."""

    device: int
    end: Levels
    peak: Levels
    """Each level's own peak; they need not be simultaneous."""
    device_alloc_calls: int | None
    """cudaMalloc and map calls, where known."""
    device_free_calls: int | None
    source: Source
    complete: bool
    """Whether the trace covers the whole life of the process, so that peaks are the process's own."""
    caveat: str = ""
