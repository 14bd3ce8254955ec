"""Growth: bytes that a line of code holds more of at every step. What is measured is the level at equal moments of successive steps.

A cache that is meant to grow and a list that is never emptied look alike here; which it is, ``diagnose`` decides.
"""

from __future__ import annotations

import math
import re
from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from vramdoc.evidence.attribution import Site
from vramdoc.evidence.origin import rows_of, trace_of

if TYPE_CHECKING:
    import numpy.typing as npt

    from vramdoc.evidence.callsites import SitedLifetimes
    from vramdoc.record.manifest import Phase
    from vramdoc.snapshot.model import Annotation, Snapshot, Trace

    Integers = npt.NDArray[np.int64]

FEWEST_STEPS = 4
"""Fewer steps than this show no trend: the first fills caches and optimizer state, and two differences can agree by chance."""
MOST_STEPS = 2000
"""Boundaries looked at; of more, evenly chosen ones (a step is then several)."""
STEADY = 0.8
"""Share of the steps in which a site must rise to be called growing; a step that returns some bytes is forgiven now and then."""
REGULAR = 0.1
"""Largest coefficient of variation of the distances between the events that mark a period found in the trace."""
SHARE = 0.01
"""Part of all requests that a rhythm must carry; a handful of requests can be evenly spaced by chance."""
_PATTERN = "a pattern"
_STEP_NAME = re.compile(r"step\b|ProfilerStep", re.IGNORECASE)
"""``Optimizer.step#AdamW.step`` (recorded by torch itself), ``ProfilerStep#``, and what people call their steps."""
_NUMBER = re.compile(r"\d+")


@dataclass(frozen=True, slots=True, kw_only=True)
class SiteGrowth:
    """One line that holds more at every step."""

    site: Site
    per_step_bytes: int
    """Median rise from one step to the next."""
    grown_bytes: int
    """From the first step looked at to the last."""
    count: int
    """Live allocations at the last step."""
    rising_steps: int
    """Steps in which it rose."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Growth:
    """How live memory changed from step to step."""

    per_step_bytes: int
    """Median rise of all live bytes; 0 or less when nothing grows."""
    grown_bytes: int
    steps: int
    """Differences looked at; the first step is left out, it fills caches."""
    sites: tuple[SiteGrowth, ...]
    """Lines that grow steadily, largest first."""
    period_source: str
    """What a step is: ``"phase 'step'"``, ``"annotation 'ProfilerStep#'"``, ``"a pattern that repeats every 412 events"``."""
    steps_are_marked: bool
    """Whether the program marked its steps. A pattern found in the trace may be the layers of one pass: then growth is the
    activations kept for the backward pass, and no leak."""


def growth(
    snapshot: Snapshot, sited: SitedLifetimes, phases: Sequence[Phase] = ()
) -> Growth | None:
    """Measure growth by step; None when no steps can be told apart."""
    trace = trace_of(snapshot, sited.lifetimes.device)
    found = _boundaries(trace, phases, snapshot.annotations)
    if found is None:
        return None
    boundaries, source = found
    boundaries = boundaries[1:]
    if len(boundaries) > MOST_STEPS:
        boundaries = boundaries[np.linspace(0, len(boundaries) - 1, MOST_STEPS).astype(np.int64)]
    levels, counts = _levels(sited, boundaries)
    rises = np.diff(levels, axis=1)
    total = np.diff(levels.sum(axis=0))
    steps = len(boundaries) - 1
    rising = np.count_nonzero(rises > 0, axis=1)
    steady = np.flatnonzero(rising >= STEADY * steps)
    grown = [
        SiteGrowth(
            site=sited.sites[i],
            per_step_bytes=int(np.median(rises[i])),
            grown_bytes=int(levels[i, -1] - levels[i, 0]),
            count=int(counts[i]),
            rising_steps=int(rising[i]),
        )
        for i in steady
    ]
    return Growth(
        per_step_bytes=int(np.median(total)),
        grown_bytes=int(total.sum()),
        steps=steps,
        sites=tuple(sorted(grown, key=lambda site: (-site.grown_bytes, site.site))),
        period_source=source,
        steps_are_marked=not source.startswith(_PATTERN),
    )


def _levels(sited: SitedLifetimes, boundaries: Integers) -> tuple[Integers, Integers]:
    """Live bytes by site at each boundary, and live allocations by site at the last.

    Returns:
        Arrays of shape (sites, boundaries) and (sites,).
    """
    rows = sited.lifetimes
    change = np.zeros((len(sited.sites), len(boundaries) + 1), np.int64)
    # A row is live at boundary b when started <= b < ended.
    np.add.at(change, (sited.site, np.searchsorted(boundaries, rows.started)), rows.size)
    np.subtract.at(change, (sited.site, np.searchsorted(boundaries, rows.ended)), rows.size)
    live = rows.live_after(int(boundaries[-1]))
    levels: Integers = np.cumsum(change, axis=1)[:, :-1]
    return levels, np.bincount(sited.site[live], minlength=len(sited.sites))


def _boundaries(
    trace: Trace, phases: Sequence[Phase], annotations: Sequence[Annotation]
) -> tuple[Integers, str] | None:
    """Events that end a step, and what told them; the person's own marks first, then torch's, then the trace's own rhythm."""
    ends: dict[str, list[int]] = defaultdict(list)
    for phase in phases:
        if phase.ended_us is not None:  # the step that failed is half a step
            ends[phase.name].append(phase.ended_us)
    marks: dict[str, list[int]] = defaultdict(list)
    for annotation in annotations:
        if annotation.stage == "END":
            marks[_NUMBER.sub("", annotation.name)].append(annotation.time_us)
    for what, times in (("phase", ends), ("annotation", marks)):
        found = _from_times(trace, times)
        if found is not None:
            return found[0], f"{what} {found[1]!r}"
    return _period(trace)


def _from_times(trace: Trace, times: Mapping[str, Sequence[int]]) -> tuple[Integers, str] | None:
    """The name that marks steps: one that says so, else the rarest of those that come often enough, which has the longest period."""
    if not len(trace) or trace.time_us[-1] < 0:
        return None
    candidates = []
    for name, moments in times.items():
        events = (
            np.searchsorted(trace.time_us, np.sort(np.array(moments, np.int64)), side="right") - 1
        )
        events = np.unique(events[events >= 0])
        if len(events) > FEWEST_STEPS:
            candidates.append((not _STEP_NAME.search(name), len(events), name, events))
    if not candidates:
        return None
    # Of equally good names the first by spelling, so that equal input gives equal output.
    *_, name, events = min(candidates, key=lambda candidate: candidate[:3])
    return events.astype(np.int64), name


def _period(trace: Trace) -> tuple[Integers, str] | None:
    """The longest regular rhythm: requests of one size from one stack that come back at even distances.

    A request made once a step has even gaps; one made in every layer has uneven ones, because a step's end lies between some.
    """
    rows = rows_of(trace, "alloc")
    regular = list(_regular_requests(trace, rows))
    carried: dict[int, int] = defaultdict(int)
    for gap, events in regular:
        carried[_similar(gap)] += len(events)
    typical = [part for part in regular if carried[_similar(part[0])] >= SHARE * len(rows)]
    if not typical:
        return None
    longest = max(_similar(gap) for gap, _ in typical)
    gap, events = max(
        (part for part in typical if _similar(part[0]) == longest),
        key=lambda part: (len(part[1]), -part[1][0]),
    )
    return events, f"{_PATTERN} that repeats every {gap:.0f} events"


def _regular_requests(trace: Trace, rows: npt.NDArray[np.intp]) -> Iterator[tuple[float, Integers]]:
    """The events of each request that comes back at even distances, with the distance; its first return is let be irregular."""
    if not len(rows):
        return
    _, size = np.unique(trace.size[rows], return_inverse=True)
    stack = trace.stack[rows].astype(np.int64) + 1
    _, kind, count = np.unique(
        size * (int(stack.max()) + 1) + stack, return_inverse=True, return_counts=True
    )
    order = np.argsort(kind, kind="stable")
    starts = np.cumsum(count) - count
    for code in np.flatnonzero(count > FEWEST_STEPS):
        events = rows[order[starts[code] : starts[code] + count[code]]].astype(np.int64)
        gaps = np.diff(events)[1:]
        gap = float(gaps.mean())
        if gaps.std() <= REGULAR * gap:
            yield gap, events


def _similar(gap: float) -> int:
    """Equal for distances within some 5 % of one another."""
    return round(math.log(gap) / math.log(1.05))
