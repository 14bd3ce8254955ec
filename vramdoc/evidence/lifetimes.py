"""Lifetimes: every allocation the snapshot tells of, from ``alloc`` to ``free_completed``, as columns.

Three kinds are in it: allocated in the trace, freed in the trace but allocated before it began, and live at the end without
any event. It measures and judges none of them.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from vramdoc.allocator.sizes import MIN_BLOCK, round_size
from vramdoc.evidence.origin import rows_of, trace_of
from vramdoc.snapshot.columns import as_int

if TYPE_CHECKING:
    import numpy.typing as npt

    from vramdoc.snapshot.model import BlockInfo, Snapshot, Trace

    Integers = npt.NDArray[np.int64]

ROUNDUP_ENTRIES = 16
"""Of roundup_power2_divisions: for 1 MiB, 2 MiB ... 32 GiB."""
BEFORE = -1
"""``started`` of an allocation older than the trace."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Lifetimes:
    """One row an allocation, ordered by start and then by address.

    Invariant: a row is live after event ``i`` when ``started <= i < ended``.
    """

    device: int
    events: int
    """Events in the trace; ``ended`` of what is live at the end."""
    started: Integers
    """Index of the ``alloc`` event, BEFORE for older allocations."""
    given_back: Integers
    """Index of ``free_requested``; equal to ``ended`` where there is none."""
    ended: Integers
    """Index of ``free_completed``."""
    address: Integers
    requested: Integers
    """Bytes the program asked for."""
    size: Integers
    """Bytes of the block: known for blocks live at the end, the rounded request for others, which may have held up to 1 MiB more."""
    stream: Integers
    stack: Integers
    """Code in the trace's stacks; -1 when no stack was kept, or where ``block`` has it."""
    block: Integers
    """Index in ``blocks`` for what is live at the end, -1 otherwise."""
    blocks: tuple[BlockInfo, ...]
    """The live blocks of the device's segments, by address."""
    lost: int
    """Allocations that the trace leaves live and no segment holds: the trace or the segments are not whole."""

    def __len__(self) -> int:
        return len(self.started)

    def live_after(self, event: int) -> npt.NDArray[np.intp]:
        """Rows that are live after ``event`` (-1: before the trace began)."""
        return np.flatnonzero((self.started <= event) & (event < self.ended))


def lifetimes(snapshot: Snapshot, device: int) -> Lifetimes:
    """Pair the events of ``device`` by address and join what is left open with the live blocks."""
    trace = trace_of(snapshot, device)
    live = [
        (block, segment.stream)
        for segment in snapshot.segments
        if segment.device == device
        for block in segment.blocks
        if block.state != "inactive"
    ]
    live.sort(key=lambda pair: pair[0].address)
    blocks = tuple(block for block, _ in live)

    started, ended = _paired(trace)
    event = np.where(started == BEFORE, ended, started)
    address = trace.address[event]
    requested = trace.size[event]
    open_rows, held_by = _held(address, np.flatnonzero(ended == len(trace)), blocks)
    block = np.full(len(event), -1, np.int64)
    block[open_rows] = held_by
    block_size = _integers(b.size for b in blocks)
    size = _rounded(requested, snapshot.allocator_settings.get("roundup_power2_divisions"))
    size[open_rows] = block_size[held_by]

    older = np.setdiff1d(np.arange(len(blocks)), held_by)
    pending = np.array([b.state == "active_pending_free" for b in blocks], bool)[older]
    end = np.full(len(older), len(trace))
    unknown = np.full(len(older), -1)
    columns = {
        "started": (started, unknown),
        # What was given back before the trace began is pending all along.
        "given_back": (_given_back(trace, address, started, ended), np.where(pending, BEFORE, end)),
        "ended": (ended, end),
        "address": (address, _integers(b.address for b in blocks)[older]),
        "requested": (requested, _integers(b.requested_size for b in blocks)[older]),
        "size": (size, block_size[older]),
        "stream": (trace.stream[event], _integers(stream for _, stream in live)[older]),
        "stack": (trace.stack[event].astype(np.int64), unknown),
        "block": (block, older),
    }
    joined = {name: np.concatenate(parts) for name, parts in columns.items()}
    order = np.lexsort((joined["address"], joined["started"]))
    return Lifetimes(
        device=device,
        events=len(trace),
        blocks=blocks,
        lost=int(np.count_nonzero(ended == len(trace))) - len(open_rows),
        **{name: column[order] for name, column in joined.items()},
    )


def _rounded(requested: Integers, divisions: Any) -> Integers:
    """Block sizes by the recorded rounding (``roundup_power2_divisions``: megabytes as text -> divisions)."""
    by_megabytes = divisions if isinstance(divisions, Mapping) else {}
    steps = [as_int(by_megabytes.get(str(1 << i))) for i in range(ROUNDUP_ENTRIES)]
    if not any(step > 1 for step in steps):
        return np.maximum(-(-requested // MIN_BLOCK) * MIN_BLOCK, MIN_BLOCK)
    sizes, which = np.unique(requested, return_inverse=True)
    rounded = [round_size(size, steps) for size in sizes.tolist()]
    return np.array(rounded, np.int64)[which]


def _paired(trace: Trace) -> tuple[Integers, Integers]:
    """First and last event of each allocation in the trace.

    Events at one address alternate between ``alloc`` and ``free_completed``, so a stable sort by address puts each pair side
    by side. A second alloc without a free between them ends the first as well: its free was not recorded.
    """
    rows = rows_of(trace, "alloc", "free_completed")
    order = rows[np.argsort(trace.address[rows], kind="stable")].astype(np.int64)
    is_alloc = trace.action[order] == trace.actions.index("alloc")
    address = trace.address[order]
    same = address[1:] == address[:-1]
    next_at_address = np.full(len(order), len(trace))
    next_at_address[:-1][same] = order[1:][same]
    follows_alloc = np.zeros(len(order), bool)
    follows_alloc[1:] = same & is_alloc[:-1]
    orphan = order[~is_alloc & ~follows_alloc]
    return (
        np.concatenate([order[is_alloc], np.full(len(orphan), BEFORE)]),
        np.concatenate([next_at_address[is_alloc], orphan]),
    )


def _given_back(trace: Trace, address: Integers, started: Integers, ended: Integers) -> Integers:
    """The first ``free_requested`` of each row's address between its start and its end; its end where there is none."""
    rows = rows_of(trace, "free_requested")
    if not len(rows):
        return ended
    # Address and position become one sortable key: rank of the address times the trace's length, plus the position.
    addresses, rank = np.unique(trace.address[rows], return_inverse=True)
    width = len(trace) + 1
    keys = np.sort(rank.astype(np.int64) * width + rows)
    own = np.searchsorted(addresses, address)
    at = np.searchsorted(keys, own * width + started, side="right")
    key = np.append(keys, -1)[at]
    known = np.append(addresses, 0)[own] == address
    found = known & (key // width == own) & (key % width < ended)
    return np.where(found, key % width, ended)


def _held(
    address: Integers, open_rows: npt.NDArray[np.intp], blocks: tuple[BlockInfo, ...]
) -> tuple[npt.NDArray[np.intp], npt.NDArray[np.intp]]:
    """Of the rows that are open at the end, those that a live block bears out, with that block's index."""
    starts = _integers(b.address for b in blocks)
    at = np.searchsorted(starts, address[open_rows])
    held = np.append(starts, -1)[at] == address[open_rows]
    return open_rows[held], at[held]


def _integers(values: Iterable[int]) -> Integers:
    return np.fromiter(values, np.int64)
