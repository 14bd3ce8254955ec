"""Segment lives: from which event to which each stretch of reserved memory existed, so that the layout of any moment is known.

The snapshot's segments are what existed at the end; the trace is undone from there, as in ``timeline``. It knows no blocks:
which of them lie in a stretch follows from ``lifetimes``.
"""

from __future__ import annotations

from bisect import bisect_left, insort
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from vramdoc.evidence.lifetimes import BEFORE
from vramdoc.evidence.origin import rows_of, trace_of
from vramdoc.evidence.pages import SMALL_PAGE

if TYPE_CHECKING:
    import numpy.typing as npt

    from vramdoc.evidence.lifetimes import Lifetimes
    from vramdoc.snapshot.model import Snapshot, Trace

    Integers = npt.NDArray[np.int64]


@dataclass(frozen=True, slots=True, order=True, kw_only=True)
class Group:
    """Where free memory can serve a request: one pool, size class and stream."""

    pool_id: tuple[int, int]
    pool: str
    """``"large"`` or ``"small"``."""
    stream: int

    @property
    def is_private(self) -> bool:
        """Whether it belongs to a CUDA graph or a ``MemPool``."""
        return self.pool_id != (0, 0)


@dataclass(frozen=True, slots=True, kw_only=True)
class SegmentLives:
    """One row a stretch, ordered by address and then by start.

    Invariant: a stretch is reserved after event ``i`` when ``started <= i < ended``; stretches of one moment do not overlap.
    """

    device: int
    started: Integers
    """The ``segment_alloc`` or ``segment_map`` event; BEFORE for what is older than the trace."""
    ended: Integers
    """The ``segment_free`` or ``segment_unmap`` event; the number of events for what is there at the end."""
    address: Integers
    size: Integers
    group: Integers
    """Index in ``groups``. Of a stretch gone before the end the size class is told by its size: small segments are 2 MiB."""
    groups: tuple[Group, ...]

    def __len__(self) -> int:
        return len(self.started)

    def at(self, event: int) -> npt.NDArray[np.intp]:
        """Rows that are reserved after ``event`` (-1: before the trace began), by address."""
        return np.flatnonzero((self.started <= event) & (event < self.ended))

    def layout(self, event: int, allocations: Lifetimes) -> dict[Group, list[tuple[str, int]]]:
        """``(state, bytes)`` along each group's addresses after ``event``, in the states of a snapshot's blocks."""
        live = allocations.live_after(event)
        live = live[np.argsort(allocations.address[live], kind="stable")]
        starts = allocations.address[live]
        pieces: dict[Group, list[tuple[str, int]]] = {group: [] for group in self.groups}
        for row in self.at(event).tolist():
            at = int(self.address[row])
            end = at + int(self.size[row])
            own = pieces[self.groups[self.group[row]]]
            for block in live[np.searchsorted(starts, at) : np.searchsorted(starts, end)].tolist():
                start, size = int(allocations.address[block]), int(allocations.size[block])
                if start > at:
                    own.append(("inactive", start - at))
                waits = allocations.given_back[block] <= event
                own.append(("active_pending_free" if waits else "active_allocated", size))
                at = start + size
            if at < end:
                own.append(("inactive", end - at))
        return {group: found for group, found in pieces.items() if found}


class _Open:
    """Stretches whose start is not known yet, by address: ``(address, size, ended, group)``."""

    def __init__(self, pieces: list[tuple[int, int, int, Group]]) -> None:
        self.pieces = sorted(pieces)

    def add(self, piece: tuple[int, int, int, Group]) -> None:
        """Put a stretch back that an undone event gave away."""
        insort(self.pieces, piece)

    def cut(self, address: int, size: int) -> list[tuple[int, int, int, Group]]:
        """Take out what lies in ``[address, address + size)``; stretches that reach beyond keep the rest."""
        end = address + size
        first = bisect_left(self.pieces, (address,))  # a shorter tuple sorts before
        if first and sum(self.pieces[first - 1][:2]) > address:
            first -= 1
        last = first
        taken, kept = [], []
        while last < len(self.pieces) and self.pieces[last][0] < end:
            start, length, ended, group = self.pieces[last]
            stop = start + length
            taken.append((max(start, address), min(stop, end) - max(start, address), ended, group))
            if start < address:
                kept.append((start, address - start, ended, group))
            if stop > end:
                kept.append((end, stop - end, ended, group))
            last += 1
        self.pieces[first:last] = kept
        return taken


def segment_lives(snapshot: Snapshot, device: int) -> SegmentLives:
    """Undo the trace of ``device`` from the segments at its end."""
    trace = trace_of(snapshot, device)
    own = [s for s in snapshot.segments if s.device == device]
    stretches = _Open(
        [
            (
                s.address,
                s.total_size,
                len(trace),
                Group(pool_id=s.segment_pool_id, pool=s.segment_type, stream=s.stream),
            )
            for s in own
        ]
    )
    lives: list[tuple[int, int, int, int, Group]] = []
    gains = {trace.actions.index(a) for a in ("segment_alloc", "segment_map") if a in trace.actions}
    moves = rows_of(trace, "segment_alloc", "segment_map", "segment_free", "segment_unmap")
    for row in moves[::-1].tolist():
        address, size = int(trace.address[row]), int(trace.size[row])
        if int(trace.action[row]) in gains:
            lives += [(a, row, n, ended, g) for a, n, ended, g in stretches.cut(address, size)]
        else:
            stretches.add((address, size, row, _group_of_event(trace, row)))
    lives += [(a, BEFORE, n, ended, g) for a, n, ended, g in stretches.pieces]
    return _columns(device, sorted(lives))


def _group_of_event(trace: Trace, row: int) -> Group:
    code = int(trace.pool[row])
    return Group(
        pool_id=trace.pools[code] if code >= 0 else (0, 0),
        pool="small" if int(trace.size[row]) <= SMALL_PAGE else "large",
        stream=int(trace.stream[row]),
    )


def _columns(device: int, lives: list[tuple[int, int, int, int, Group]]) -> SegmentLives:
    groups = tuple(
        sorted(
            {life[4] for life in lives}, key=lambda g: (g.is_private, g.pool_id, g.pool, g.stream)
        )
    )
    code = {group: index for index, group in enumerate(groups)}
    table = np.array(
        [(a, start, n, end, code[g]) for a, start, n, end, g in lives], np.int64
    ).reshape(-1, 5)
    address, started, size, ended, group = table.T
    return SegmentLives(
        device=device, started=started, ended=ended, address=address, size=size, group=group, groups=groups
    )  # fmt: skip
