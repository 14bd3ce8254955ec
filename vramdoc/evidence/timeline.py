"""The four levels of memory after every event of a trace, and their exact peaks. It judges nothing.

Levels are anchored at the snapshot's segments: what is live at the end is known, and the trace is undone from there. So a trace
that began late, or whose ring buffer overflowed, still gives true levels for the events it holds.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from vramdoc.evidence.lifetimes import lifetimes
from vramdoc.evidence.origin import rows_of, trace_of
from vramdoc.evidence.usage import Levels

if TYPE_CHECKING:
    import numpy.typing as npt

    from vramdoc.evidence.lifetimes import Lifetimes
    from vramdoc.snapshot.model import Snapshot, Trace

    Integers = npt.NDArray[np.int64]

LEVELS = ("requested", "allocated", "active", "reserved")


@dataclass(frozen=True, slots=True, kw_only=True)
class Timeline:
    """Bytes after each event. Row 0 is the state before the first event, so every column is one longer than the trace."""

    device: int
    time_us: Integers
    """Of the event; row 0 repeats the first time. -1 where the release recorded none."""
    requested: Integers
    allocated: Integers
    active: Integers
    reserved: Integers
    event: Integers
    """Index of the event in the trace, -1 for row 0."""

    def __len__(self) -> int:
        return len(self.event)

    def peak(self, level: str) -> tuple[int, int]:
        """The highest value of ``level`` and the event after which it was first reached (-1: before the trace)."""
        column: Integers = getattr(self, level)
        row = int(np.argmax(column))
        return int(column[row]), int(self.event[row])

    def at(self, row: int) -> Levels:
        """The levels of one row."""
        return Levels(**{level: int(getattr(self, level)[row]) for level in LEVELS})

    def downsampled(self, rows: int) -> Timeline:
        """At most about ``rows`` rows that look the same when drawn: of each stretch the first row and each level's extremes.

        Peaks are kept exactly, because each stretch keeps its own highest row of every level.
        """
        if len(self) <= rows:
            return self
        per_stretch = 1 + 2 * len(LEVELS)
        starts = np.linspace(0, len(self), max(rows // per_stretch, 1), endpoint=False).astype(int)
        kept = [starts, np.array([len(self) - 1])]
        for level in LEVELS:
            column: Integers = getattr(self, level)
            kept.append(_extreme_rows(column, starts, np.maximum))
            kept.append(_extreme_rows(column, starts, np.minimum))
        chosen = np.unique(np.concatenate(kept))
        columns = {name: getattr(self, name)[chosen] for name in (*LEVELS, "time_us", "event")}
        return Timeline(device=self.device, **columns)


def timeline(snapshot: Snapshot, device: int, allocations: Lifetimes | None = None) -> Timeline:
    """Compute the levels of ``device`` after every event.

    Args:
        snapshot: with or without a trace; without one the timeline has the single row of its segments.
        device: index of the device.
        allocations: ``lifetimes(snapshot, device)``, when the caller has it.
    """
    trace = trace_of(snapshot, device)
    own = allocations if allocations is not None else lifetimes(snapshot, device)
    return Timeline(
        device=device,
        time_us=_with_start(trace.time_us),
        event=np.arange(-1, len(trace)),
        # torch lowers requested and active bytes when the free completes, allocated bytes when it is asked for.
        requested=_level(len(trace), own.started, own.ended, own.requested),
        allocated=_level(len(trace), own.started, own.given_back, own.size),
        active=_level(len(trace), own.started, own.ended, own.size),
        reserved=_reserved(snapshot, device, trace),
    )


def _level(events: int, started: Integers, ended: Integers, size: Integers) -> Integers:
    """Sum of ``size`` over rows with ``started <= event < ended``, for event -1 and up."""
    change = np.zeros(events + 2, np.int64)
    lives = ended > started
    np.add.at(change, started[lives] + 1, size[lives])
    np.subtract.at(change, ended[lives] + 1, size[lives])
    levels: Integers = np.cumsum(change[:-1])
    return levels


def _reserved(snapshot: Snapshot, device: int, trace: Trace) -> Integers:
    """Reserved bytes, undone from the end. Never below what a mended trace would allow, which is 0."""
    change = np.zeros(len(trace) + 1, np.int64)
    gained, given = (
        rows_of(trace, "segment_alloc", "segment_map"),
        rows_of(trace, "segment_free", "segment_unmap"),
    )
    change[gained + 1] = trace.size[gained]
    change[given + 1] = -trace.size[given]
    end = sum(s.total_size for s in snapshot.segments if s.device == device)
    levels = np.cumsum(change)
    reserved: Integers = np.maximum(levels + (end - levels[-1]), 0)
    return reserved


def _with_start(time_us: Integers) -> Integers:
    return np.concatenate([time_us[:1] if len(time_us) else np.array([-1]), time_us])


def _extreme_rows(column: Integers, starts: npt.NDArray[np.int_], best: np.ufunc) -> Integers:
    """The first row of each stretch that holds the stretch's maximum or minimum."""
    extreme = best.reduceat(column, starts)
    lengths = np.diff(np.append(starts, len(column)))
    hits = np.flatnonzero(column == np.repeat(extreme, lengths))
    stretch = np.searchsorted(starts, hits, side="right") - 1
    first: Integers = hits[np.unique(stretch, return_index=True)[1]]
    return first
