"""Put an allocator into a recorded layout: segments in the snapshot's schema back into blocks.

What a snapshot does not hold is assumed, and said here: segments were made in the order of their addresses; free blocks have
the same age; the address range of an expandable segment begins at its first mapped page; private pools are in use.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from vramdoc.allocator.blocks import Block, BlockPool, ExpandableSegment, PrivatePool
from vramdoc.allocator.heap import Heap, reserve_bytes
from vramdoc.allocator.sizes import SMALL_BUFFER
from vramdoc.errors import Contradiction

Segment = Mapping[str, Any]


def restore_segments(heap: Heap, segments: Iterable[Segment]) -> list[Block]:
    """Fill an empty heap; returns the blocks that wait for an event."""
    ordered = sorted(segments, key=lambda segment: segment["address"])
    ranges: dict[tuple[BlockPool, int], list[_RangeBuilder]] = {}
    pending: list[Block] = []
    for segment in ordered:
        pool = _pool(heap, segment)
        if segment["is_expandable"]:
            mine = ranges.setdefault((pool, segment["stream"]), [])
            if not mine or not mine[-1].reaches(segment):
                mine.append(_RangeBuilder(heap, pool, segment))
            mine[-1].add(segment, pending)
        else:
            _classic(heap, pool, segment, pending)
    for builders in ranges.values():
        for builder in builders:
            builder.close()
    return pending


def _pool(heap: Heap, segment: Segment) -> BlockPool:
    small = segment["segment_type"] == "small"
    pool_id = tuple(segment["segment_pool_id"])
    if pool_id == (0, 0):
        return heap.small if small else heap.large
    return heap.private.setdefault(pool_id, PrivatePool(pool_id)).half(small=small)


def _classic(heap: Heap, pool: BlockPool, segment: Segment, pending: list[Block]) -> None:
    heap.device.adopt(segment["address"], segment["total_size"])
    heap.adopt_segment(pool, segment["total_size"], classic=True)
    previous: Block | None = None
    for entry in _tiling(segment):
        block = heap.carve(segment["stream"], entry["size"], pool, entry["address"], None, previous)
        block.splice(previous, None)
        _settle(heap, block, entry, pending, split=len(segment["blocks"]) > 1)
        previous = block


def _tiling(segment: Segment) -> Iterable[Mapping[str, Any]]:
    """The blocks, which must cover the segment from end to end."""
    here = segment["address"]
    for entry in segment["blocks"]:
        if entry["address"] != here:
            break
        here += entry["size"]
        yield entry
    if here != segment["address"] + segment["total_size"]:
        raise Contradiction(
            f"the blocks of segment {segment['address']:#x} do not cover it from end to end",
            "a layout that does not add up cannot be replayed",
        )


def _settle(
    heap: Heap, block: Block, entry: Mapping[str, Any], pending: list[Block], *, split: bool
) -> None:
    block.requested_size = entry["requested_size"]
    if entry["state"] == "inactive":
        block.pool.insert(block)
        if split and block.expandable_segment is None:
            heap.stats.inactive_split.change(1, small=block.pool.small)
            heap.stats.inactive_split_bytes.change(block.size, small=block.pool.small)
        return
    block.allocated = entry["state"] == "active_allocated"
    heap.active[block.address] = block
    heap.count_active(block)
    if not block.allocated:
        block.event_count = 1
        pending.append(block)


class _RangeBuilder:
    """One expandable segment under construction: its mapped runs, and unmapped blocks between them."""

    def __init__(self, heap: Heap, pool: BlockPool, first: Segment) -> None:
        self.heap = heap
        self.pool = pool
        self.stream: int = first["stream"]
        page = SMALL_BUFFER if pool.small else heap.config.large_segment_size
        space = reserve_bytes(heap.config.expandable_segments_reserve, heap.device.capacity)
        self.range = ExpandableSegment(first["address"], page, -(-space // page))
        self.last: Block | None = None

    @property
    def here(self) -> int:
        """Where the next piece begins."""
        return self.range.address if self.last is None else self.last.address + self.last.size

    @property
    def end(self) -> int:
        """End of the address range."""
        return self.range.address + self.range.size

    def reaches(self, segment: Segment) -> bool:
        """Whether a mapped run lies in this range."""
        end: int = segment["address"] + segment["total_size"]
        return end <= self.end

    def add(self, segment: Segment, pending: list[Block]) -> None:
        """Append a mapped run."""
        heap, address, size = self.heap, segment["address"], segment["total_size"]
        first, end = self.range.covering(address, size)
        if (address - self.range.address) % self.range.page or size % self.range.page:
            raise Contradiction(
                f"the expandable segment at {address:#x} is not made of whole pages of {self.range.page} bytes",
                "large_segment_size_mb of the recording is another one",
            )
        self._unmapped_up_to(address)
        self.range.mark(first, end, mapped=True)
        heap.device.adopt_pages(address, size)
        heap.adopt_segment(self.pool, size, classic=False)
        for entry in _tiling(segment):
            block = heap.carve(
                self.stream, entry["size"], self.pool, entry["address"], self.range, self.last
            )
            block.splice(self.last, None)
            _settle(heap, block, entry, pending, split=True)
            self.last = block

    def close(self) -> None:
        """The rest of the range is not mapped."""
        self._unmapped_up_to(self.end)
        self.heap.device.adopt_pages(self.end, 0)

    def _unmapped_up_to(self, address: int) -> None:
        if address <= self.here:
            return
        block = self.heap.carve(
            self.stream, address - self.here, self.pool, self.here, self.range, self.last
        )
        block.mapped = False
        block.splice(self.last, None)
        self.pool.insert_unmapped(block)
        self.last = block
