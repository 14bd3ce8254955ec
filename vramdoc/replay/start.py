"""The layout at the start of a late trace, rebuilt by undoing the events from the final segments.

Free neighbours are always merged, so segments and live blocks determine the layout; the one thing a trace can leave open is
a remainder of up to 1 MiB inside a block of the large pool (``should_split``). Where that stays open, it is counted.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from vramdoc.allocator.config import AllocatorConfig
from vramdoc.allocator.sizes import SMALL_BUFFER, SMALL_SIZE, round_size
from vramdoc.errors import Contradiction
from vramdoc.replay.from_trace import ALLOC, SEGMENT_ALLOC, SEGMENT_FREE, SEGMENT_MAP, SEGMENT_UNMAP
from vramdoc.replay.requests import Requests
from vramdoc.units import format_bytes

if TYPE_CHECKING:
    from vramdoc.snapshot.model import Snapshot, Trace


@dataclass(frozen=True, slots=True, kw_only=True)
class StartState:
    """What the allocator held when the trace began."""

    segments: tuple[dict[str, Any], ...]
    """In the schema of torch.cuda.memory._snapshot()["segments"]; requested sizes of free blocks are 0."""
    open_sizes: int
    """Older blocks whose size could not be told from the trace; they are taken to hold no remainder."""

    @property
    def reserved_bytes(self) -> int:
        """Bytes of all segments."""
        return sum(segment["total_size"] for segment in self.segments)

    @property
    def active_bytes(self) -> int:
        """Bytes of live blocks."""
        return sum(segment["active_size"] for segment in self.segments)

    def sentence(self) -> str:
        """What was there, for a reader."""
        if not self.segments:
            return "the trace starts with an empty allocator"
        text = (
            f"{format_bytes(self.active_bytes)} were alive before the trace began, in "
            f"{format_bytes(self.reserved_bytes)} of segments"
        )
        if self.open_sizes:
            text += f"; {self.open_sizes} of those blocks may be up to 1 MiB larger than assumed"
        return text


@dataclass(slots=True)
class _Range:
    """One segment, or one mapped run of an expandable one, at the start."""

    address: int
    size: int
    stream: int
    pool: tuple[int, int]
    small: bool
    expandable: bool

    @property
    def end(self) -> int:
        return self.address + self.size


def start_state(
    snapshot: Snapshot, trace: Trace, requests: Requests, config: AllocatorConfig
) -> StartState:
    """Undo ``trace`` from the final segments.

    Raises:
        Contradiction: an older block lies in no segment, or two of them overlap.
    """
    ranges = sorted(_ranges(snapshot, trace), key=lambda r: r.address)
    older = requests.older
    order = np.argsort(older.address, kind="stable")
    segments, unsure, taken = [], 0, 0
    sizes = _Sizes(trace, requests, config)
    for place in ranges:
        mine = []
        while taken < len(order) and older.address[order[taken]] < place.end:
            mine.append(int(order[taken]))
            taken += 1
        if mine and older.address[mine[0]] < place.address:
            raise _homeless(int(older.address[mine[0]]))
        segment, doubts = _segment(trace.device, place, mine, requests, sizes)
        segments.append(segment)
        unsure += doubts
    if taken < len(order):
        raise _homeless(int(older.address[order[taken]]))
    return StartState(segments=tuple(segments), open_sizes=unsure)


def _homeless(address: int) -> Contradiction:
    return Contradiction(
        f"the block at {address:#x} lived before the trace began, but in no segment of the snapshot",
        "trace and segments are not of one process",
    )


def _ranges(snapshot: Snapshot, trace: Trace) -> list[_Range]:
    """Reserved memory at the start: that of the end, less what the trace obtained, and what it returned."""
    classic: dict[int, _Range] = {}
    runs: list[_Range] = []
    for s in snapshot.segments:
        if s.device != trace.device:
            continue
        place = _Range(
            s.address,
            s.total_size,
            s.stream,
            s.segment_pool_id,
            s.segment_type == "small",
            s.is_expandable,
        )
        if s.is_expandable:
            runs.append(place)
        else:
            classic[s.address] = place
    changes = np.flatnonzero((trace.action >= SEGMENT_ALLOC) & (trace.action <= SEGMENT_UNMAP))
    for event in changes[::-1].tolist():
        action, address, size = (
            int(trace.action[event]),
            int(trace.address[event]),
            int(trace.size[event]),
        )
        pool = trace.pools[trace.pool[event]] if trace.pool[event] >= 0 else (0, 0)
        place = _Range(
            address,
            size,
            int(trace.stream[event]),
            pool,
            size == SMALL_BUFFER,
            action in {SEGMENT_MAP, SEGMENT_UNMAP},
        )
        if action == SEGMENT_ALLOC:
            if classic.pop(address, None) is None:
                raise Contradiction(
                    f"event {event} obtains a segment at {address:#x} that nothing returns and that the segments do not show",
                    "trace and segments are not of one moment",
                )
        elif action == SEGMENT_FREE:
            classic[address] = place
        elif action == SEGMENT_MAP:
            runs = _without(runs, place, event)
        else:
            runs = _with(runs, place)
    return [*classic.values(), *runs]


def _without(runs: list[_Range], gone: _Range, event: int) -> list[_Range]:
    for index, run in enumerate(runs):
        if run.address <= gone.address and gone.end <= run.end:
            pieces = [
                _Range(address, end - address, run.stream, run.pool, run.small, expandable=True)
                for address, end in ((run.address, gone.address), (gone.end, run.end))
                if end > address
            ]
            return [*runs[:index], *pieces, *runs[index + 1 :]]
    raise Contradiction(
        f"event {event} maps {gone.address:#x}, which nothing unmaps and which the segments do not show",
        "trace and segments are not of one moment",
    )


def _with(runs: list[_Range], more: _Range) -> list[_Range]:
    """Put an unmapped run back; it joins the mapped ones it touches."""
    kept = []
    for run in runs:
        if run.end == more.address or more.end == run.address:
            start, end = min(run.address, more.address), max(run.end, more.end)
            more = _Range(start, end - start, run.stream, run.pool, run.small, expandable=True)
        else:
            kept.append(run)
    return [*kept, more]


def _segment(
    device: int, place: _Range, mine: list[int], requests: Requests, sizes: _Sizes
) -> tuple[dict[str, Any], int]:
    """The segment with its older blocks ``mine`` and the free memory between them; and how many sizes stay open."""
    older = requests.older
    blocks: list[dict[str, Any]] = []
    here, doubts = place.address, 0
    bounds = [*(int(older.address[i]) for i in mine[1:]), place.end][: len(mine)]
    for index, bound in zip(mine, bounds, strict=True):
        address = int(older.address[index])
        if address < here:
            raise Contradiction(
                f"two blocks that lived before the trace began overlap at {address:#x}",
                "trace and segments are not of one process",
            )
        if address > here:
            blocks.append(_free(here, address - here))
        size, sure = sizes.of(index, bound, place)
        doubts += not sure
        state = "active_pending_free" if older.pending[index] else "active_allocated"
        blocks.append(
            {
                "address": address,
                "size": size,
                "requested_size": int(older.requested[index]),
                "state": state,
                "frames": [],
            }
        )
        here = address + size
    if here > place.end:
        raise Contradiction(
            f"a block that lived before the trace began reaches beyond its segment at {place.address:#x}",
            "trace and segments are not of one process",
        )
    if here < place.end:
        blocks.append(_free(here, place.end - here))
    live = [block for block in blocks if block["state"] != "inactive"]
    return {
        "device": device,
        "address": place.address,
        "total_size": place.size,
        "allocated_size": sum(b["size"] for b in live if b["state"] == "active_allocated"),
        "active_size": sum(b["size"] for b in live),
        "requested_size": sum(b["requested_size"] for b in live),
        "stream": place.stream,
        "segment_type": "small" if place.small else "large",
        "segment_pool_id": place.pool,
        "is_expandable": place.expandable,
        "frames": [],
        "blocks": blocks,
    }, doubts


def _free(address: int, size: int) -> dict[str, Any]:
    return {
        "address": address,
        "size": size,
        "requested_size": 0,
        "state": "inactive",
        "frames": [],
    }


class _Sizes:
    """Sizes of older blocks that the trace frees; the snapshot shows those of the others."""

    def __init__(self, trace: Trace, requests: Requests, config: AllocatorConfig) -> None:
        self.older = requests.older
        self.divisions = config.roundup_power2_divisions
        self.splits_finely = config.expandable_segments
        self.events = np.flatnonzero(trace.action == ALLOC)
        order = np.argsort(trace.address[self.events], kind="stable")
        self.by_address = trace.address[self.events][order]
        self.when = self.events[order]

    def of(self, index: int, bound: int, place: _Range) -> tuple[int, bool]:
        """Size of older block ``index``, whose next live neighbour or segment end is at ``bound``; and whether it is sure."""
        if self.older.size[index]:
            return int(self.older.size[index]), True
        address = int(self.older.address[index])
        size = round_size(int(self.older.requested[index]), self.divisions)
        rest = bound - address - size
        if place.small or place.expandable or self.splits_finely or rest <= 0:
            return size, True
        if rest <= SMALL_SIZE:
            # A free block of the large pool is always larger than 1 MiB, so this is no hole: the block was not split.
            return size + rest, True
        # The first block that is put into the hole behind this one starts where this one ends.
        low, high = np.searchsorted(self.by_address, (address + size, bound))
        freed = int(self.older.freed[index])
        inside = np.flatnonzero(self.when[low:high] < freed)
        if len(inside):
            first = low + inside[np.argmin(self.when[low:high][inside])]
            return int(self.by_address[first]) - address, True
        return size, False
