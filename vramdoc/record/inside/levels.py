"""Levels and peaks of the allocator, phase by phase, without losing the peaks of the whole run.

torch keeps one peak a statistic, and measuring a phase means resetting it. What a reset would forget is carried over here.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field

import torch


@dataclass(slots=True)
class PhasePeaks:
    """The largest values seen since a phase began, nested phases included."""

    peaks: dict[str, int] = field(default_factory=dict)

    def absorb(self, statistics: dict[str, int]) -> None:
        """Take in the peaks that torch kept since its last reset."""
        for name, value in statistics.items():
            if name.endswith(".peak"):
                self.peaks[name] = max(value, self.peaks.get(name, 0))


class PeakLedger:
    """Hands out the peaks of phases, nested or not, and of the whole run.

    Only for a process whose statistics nobody else reads: it calls ``reset_peak_memory_stats``.
    """

    def __init__(self) -> None:
        self._open = [PhasePeaks()]

    @contextmanager
    def phase(self) -> Iterator[PhasePeaks]:
        """Peaks from here to the end of the block; complete once the block has ended."""
        self._collect()
        peaks = PhasePeaks()
        self._open.append(peaks)
        try:
            yield peaks
        finally:
            self._collect()
            self._open.remove(peaks)

    def statistics(self) -> dict[str, int]:
        """``torch.cuda.memory_stats()`` under its own keys, its peaks those of the whole run."""
        self._collect(reset=False)
        return {**memory_statistics(), **self._open[0].peaks}

    def _collect(self, *, reset: bool = True) -> None:
        statistics = memory_statistics()
        for peaks in self._open:
            peaks.absorb(statistics)
        if reset:
            torch.cuda.reset_peak_memory_stats()


def memory_statistics(device: int | None = None) -> dict[str, int]:
    """``torch.cuda.memory_stats()`` of a device (the current one by default), as plain integers; empty before CUDA is used."""
    return {name: int(value) for name, value in torch.cuda.memory_stats(device).items()}


def device_in_use() -> int | None:
    """The device that this process reserved most on, at any time; the current one when it has reserved nothing.

    None before CUDA is used. Asks no device for anything that would make a context on it.
    """
    if not torch.cuda.is_initialized():
        return None
    current = torch.cuda.current_device()
    if torch.cuda.device_count() == 1:
        return current

    def reserved(device: int) -> tuple[int, bool]:
        return torch.cuda.memory_stats(device).get("reserved_bytes.all.peak", 0), device == current

    return max(range(torch.cuda.device_count()), key=reserved)


def driver_free(device: int | None) -> int | None:
    """``cudaMemGetInfo``'s free bytes; None where CUDA fails, as it does for good after a device-side assert."""
    try:
        return int(torch.cuda.mem_get_info(device)[0])
    except RuntimeError:
        return None
