"""Memory figures that a program prints of itself, line after line, and whether they rise. It names no cause."""

from __future__ import annotations

from collections import defaultdict
from dataclasses import dataclass
from itertools import pairwise

from vramdoc.crashlog.incident import CrashLog, Incident, Reading

FEWEST_LINES = 5
"""Logged figures needed for a trend; the first steps fill caches."""
STEADY = 0.8
"""Share of the lines that must rise, as for measured growth (``evidence.growth``). A peak that longer inputs raise now and then
stays the same on most lines."""
GROWN = 1.5
"""Last over first: optimizer state and caches of the first steps add less."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Rise:
    """One figure of the log that rises on nearly every line."""

    first: Reading
    last: Reading
    lines: int

    @property
    def grown_bytes(self) -> int:
        """Last minus first."""
        return int(self.last.value) - int(self.first.value)


def rise(log: CrashLog) -> Rise | None:
    """The first figure that rises, each rank's and each label's apart."""
    series: dict[tuple[int | None, str], list[Incident]] = defaultdict(list)
    for line in log.observations:
        if line.kind == "memory-use":
            label = line.text.replace(line.readings["used"].text, "")
            series[line.rank, label].append(line)
    return next((found for lines in series.values() if (found := _rise(lines))), None)


def _rise(lines: list[Incident]) -> Rise | None:
    used = [line.readings["used"] for line in lines]
    values = [int(reading.value) for reading in used]
    printed = sum(line.repeated for line in lines)
    rises = sum(later > earlier for earlier, later in pairwise(values))
    if printed < FEWEST_LINES or rises < STEADY * (printed - 1):
        return None
    if values[-1] < GROWN * values[0]:
        return None
    return Rise(first=used[0], last=used[-1], lines=printed)
