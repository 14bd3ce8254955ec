"""The program's own ``torch.profiler.record_function`` ranges, as phases."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping
from typing import Any

from vramdoc.record.manifest import Phase

MOST_PHASES = 10_000
"""Later ones win: they are the ones that the end of the run is judged by."""


def phases_of(annotations: Iterable[Mapping[str, Any]], device: int) -> tuple[Phase, ...]:
    """Pair the START and END marks of one device, ranges of one name nesting; a range that never ended has no end.

    ``annotations`` are those of ``torch.cuda.memory._snapshot()["external_annotations"]`` (torch 2.5 and later).
    """
    open_ranges: defaultdict[str, list[int]] = defaultdict(list)
    phases = []
    for mark in annotations:
        if mark["device"] != device:
            continue
        name, time_us = mark["name"], mark["time_us"]
        if mark["stage"] == "START":
            open_ranges[name].append(time_us)
        elif open_ranges[name]:
            phases.append(_phase(name, open_ranges[name].pop(), time_us))
    phases += [
        _phase(name, start, None) for name, starts in open_ranges.items() for start in starts
    ]
    phases.sort(key=lambda phase: phase.started_us)
    return tuple(phases[-MOST_PHASES:])


def _phase(name: str, started_us: int, ended_us: int | None) -> Phase:
    return Phase(
        name=name, started_us=started_us, ended_us=ended_us, detail={"by": "record_function"}
    )
