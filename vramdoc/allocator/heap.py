"""Heap: the segments of one device, cut into blocks. Mechanism only: it finds, splits, merges, maps and returns.

When to give memory back, and in which order to try, is decided elsewhere (``reclaim``, ``caching``). Functions carry the
names of c10/cuda/CUDACachingAllocator.cpp.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, Protocol

from vramdoc.allocator.blocks import Block, BlockPool, ExpandableSegment, PoolId, PrivatePool
from vramdoc.allocator.config import AllocatorConfig
from vramdoc.allocator.device import Device
from vramdoc.allocator.errors import UndefinedBehaviour, internal_assert
from vramdoc.allocator.releases import Rules, TieBreak
from vramdoc.allocator.sizes import MIN_BLOCK, SMALL_BUFFER, SMALL_SIZE
from vramdoc.allocator.statistics import PoolStat, Statistics

Event = tuple[str, int, int, int, PoolId]
"""Action, address (device_free of an oom), size, stream, pool id."""


class EventSink(Protocol):
    """Where events go: a list, or whatever wants to see them as they happen."""

    def append(self, event: Event, /) -> None:
        """Take one event."""


class Heap:
    """All memory that the allocator holds on one device."""

    def __init__(self, config: AllocatorConfig, device: Device, rules: Rules) -> None:
        self.config = config
        self.device = device
        self.rules = rules
        self.stats = Statistics()
        self.small = BlockPool(small=True)
        self.large = BlockPool(small=False)
        self.private: dict[PoolId, PrivatePool] = {}
        self.active: dict[int, Block] = {}
        """Blocks that are allocated or wait for events, by address."""
        self.total_allocated = 0
        """Bytes obtained from the driver."""
        self.limit: int | None = None
        """allowed_memory_maximum."""
        self.events: EventSink | None = []
        """The trace, or None when nothing is recorded."""
        self.counter = 0
        """Next value of the tie-break counter."""

    # Bookkeeping

    def record(self, action: str, address: int, size: int, stream: int, pool: BlockPool) -> None:
        """Append one event to the trace."""
        if self.events is not None:
            self.events.append((action, address, size, stream, pool.id))

    @property
    def collects_garbage(self) -> bool:
        """Whether blocks have an age: a limit and a threshold are both set."""
        return self.limit is not None and self.config.garbage_collection_threshold > 0.0

    def pools(self) -> Iterator[BlockPool]:
        """Every small and large pool."""
        yield self.small
        yield self.large
        for pool in self.private.values():
            yield pool.small
            yield pool.large

    def carve(
        self,
        stream: int,
        size: int,
        pool: BlockPool,
        address: int,
        segment: ExpandableSegment | None,
        origin: Block | None,
    ) -> Block:
        """A new Block; ``origin`` is the one it is carved from, None for a new segment."""
        tie = 0
        if self.rules.tie_break is TieBreak.SEGMENT_COUNTER and origin is not None:
            tie = origin.tie
        elif self.rules.tie_break is not TieBreak.ADDRESS:
            tie, self.counter = self.counter, self.counter + 1
        return Block(stream, size, pool, address, tie, segment)

    def _obtained(self, pool: BlockPool, size: int) -> None:
        self.total_allocated += size
        self.stats.num_device_alloc += 1
        self._reserved(pool, size)

    def _returned(self, pool: BlockPool, size: int) -> None:
        self.total_allocated -= size
        if pool.owner is not None:
            pool.owner.device_allocs -= 1
        self._reserved(pool, -size)

    def _reserved(self, pool: BlockPool, change: int) -> None:
        self.stats.reserved_bytes.change(change, small=pool.small)
        if pool.owner is not None:
            stat = self.stats.private_pools.setdefault(pool.owner.id, PoolStat())
            stat.change(change, small=pool.small)

    def adopt_segment(self, pool: BlockPool, size: int, *, classic: bool) -> None:
        """Account for a segment, or a mapped run, that existed before (``restore``)."""
        self.total_allocated += size
        self._reserved(pool, size)
        if pool.owner is not None:
            pool.owner.device_allocs += 1
        if classic:
            self.stats.segment.change(1, small=pool.small)
            if size >= self.config.max_split_size:
                self.stats.oversize_segments.increase(1)

    def count_active(self, block: Block) -> None:
        """Count a block that became active; ``allocated`` decides whether it counts as allocated too."""
        stats, small = self.stats, block.pool.small
        stats.active.change(1, small=small)
        stats.active_bytes.change(block.size, small=small)
        stats.requested_bytes.change(block.requested_size, small=small)
        if not block.allocated:
            return
        stats.allocation.change(1, small=small)
        stats.allocated_bytes.change(block.size, small=small)
        if block.size >= self.config.max_split_size:
            stats.oversize_allocations.increase(1)

    # Finding

    def get_free_block(
        self, pool: BlockPool, stream: int, size: int, *, expandable: bool
    ) -> Block | None:
        """Best fit of ``size`` bytes for ``stream``, taken out of the free set."""
        if self.collects_garbage:
            pool.searches += 1
        index = self.find(pool, stream, size, expandable=expandable)
        if index is None:
            return None
        block = pool.free[index][4]
        del pool.free[index]
        return block

    def find(self, pool: BlockPool, stream: int, size: int, *, expandable: bool) -> int | None:
        """Where in the free set the best fit is."""
        free, count = pool.free, len(pool.free)
        index = pool.lower_bound(stream, size)
        if index == count or free[index][0] != stream:
            return None
        if free[index][4].expandable_segment is not None:
            if expandable:
                index = _least_extensible(free, index)
            else:
                while (
                    index < count and free[index][0] == stream and free[index][4].expandable_segment
                ):
                    index += 1
                if index == count or free[index][0] != stream:
                    return None
        found, config = free[index][1], self.config
        # Oversized blocks are kept for oversized requests, and those take none that is much larger than they are.
        if size < config.max_split_size <= found:
            return None
        # The sum is a size_t: with max_non_split_rounding_mb:-1 it wraps around.
        if size >= config.max_split_size and found >= (size + config.max_non_split_rounding) % (
            1 << 64
        ):
            return None
        return index

    # Obtaining

    def malloc_segment(self, pool: BlockPool, stream: int, size: int) -> Block | None:
        """Obtain (cudaMalloc) a segment of ``size`` bytes; None when the device is out of memory."""
        address = self.device.malloc(size)
        if address is None:
            return None
        if pool.owner is not None:
            pool.owner.device_allocs += 1
        self._obtained(pool, size)
        self.stats.segment.change(1, small=pool.small)
        if size >= self.config.max_split_size:
            self.stats.oversize_segments.increase(1)
        self.record("segment_alloc", address, size, stream, pool)
        return self.carve(stream, size, pool, address, None, None)

    def try_allocate_expandable_block(
        self, pool: BlockPool, stream: int, size: int
    ) -> Block | None:
        """A free block of at least ``size`` bytes in an expandable segment; maps no more pages than it must.

        On failure the pages that were mapped on the way stay mapped.
        """
        candidate = self._find_expandable_block(pool, stream, size)
        if candidate is None:
            return None
        if not candidate.mapped and not self._map_block(candidate, min(candidate.size, size)):
            return None
        while candidate.size < size:
            following = candidate.next
            assert following is not None, "the search saw enough address space"
            if not self._map_block(following, min(size - candidate.size, following.size)):
                return None
            candidate = following  # has absorbed the candidate
        pool.remove(candidate)
        if pool.owner is not None:
            pool.owner.device_allocs += 1
        return candidate

    def _find_expandable_block(self, pool: BlockPool, stream: int, size: int) -> Block | None:
        for of_stream, _, unmapped in pool.unmapped:
            if of_stream != stream:
                continue
            before = unmapped.prev
            candidate = unmapped if before is None or before.is_active else before
            if _address_space(candidate, size) >= size:
                return candidate
        page = SMALL_BUFFER if pool.small else self.config.large_segment_size
        segment = self._reserve_segment(stream, page)
        if self.rules.refuses_hopeless_expandable and segment.size < size:
            return None
        block = self.carve(stream, segment.size, pool, segment.address, segment, None)
        block.mapped = False
        pool.insert_unmapped(block)
        return block

    def _reserve_segment(self, stream: int, page: int) -> ExpandableSegment:
        """Address space of 9/8 of the device, or what expandable_segments_reserve says (torch 2.15)."""
        capacity = self.device.capacity
        pages = -(-(reserve_bytes(self.config.expandable_segments_reserve, capacity)) // page)
        address = self.device.reserve(pages * page, stream=stream, page=page)
        return ExpandableSegment(address, page, pages)

    def _map_block(self, block: Block, size: int) -> bool:
        """Map the pages behind the first ``size`` bytes of an unmapped block; the rest stays unmapped behind it."""
        segment, pool = block.expandable_segment, block.pool
        assert segment is not None
        assert not block.mapped
        first, end = segment.covering(block.address, size)
        if not self.device.map(
            segment.address + first * segment.page, (end - first) * segment.page
        ):
            return False
        address, mapped = segment.mark(first, end, mapped=True)
        pool.remove_unmapped(block)
        block.mapped = True
        if mapped < block.size:
            rest = self.carve(
                block.stream, block.size - mapped, pool, address + mapped, segment, block
            )
            rest.mapped = False
            rest.splice(block, block.next)
            pool.insert_unmapped(rest)
            block.size = mapped
        self._merge(block, block.prev)
        self._merge(block, block.next)
        pool.insert(block)
        self._obtained(pool, mapped)
        self.record("segment_map", address, mapped, block.stream, pool)
        return True

    # Cutting and joining

    def should_split(self, block: Block, size: int, *, expandable: bool) -> bool:
        """Whether the rest of ``block`` beyond ``size`` bytes becomes a block of its own."""
        owner = block.pool.owner
        if owner is not None and owner.no_split:
            return False
        rest = block.size - size
        if block.pool.small or expandable:
            return rest >= MIN_BLOCK
        return size < self.config.max_split_size and rest > SMALL_SIZE

    def split(self, block: Block, size: int) -> Block:
        """Cut ``size`` bytes off the front as a new block; the old object becomes the free rest."""
        front = self.carve(
            block.stream, size, block.pool, block.address, block.expandable_segment, block
        )
        front.splice(block.prev, block)
        block.address += size
        block.size -= size
        block.pool.insert(block)
        return front

    def join_free(self, block: Block) -> None:
        """Merge a block that became free with its free neighbours and put it into the free set (free_block)."""
        size, requested, small = block.size, block.requested_size, block.pool.small
        self.record("free_completed", block.address, requested, block.stream, block.pool)
        del self.active[block.address]
        count_change, bytes_change = 0, 0
        for neighbour in (block.prev, block.next):
            swallowed = self._merge(block, neighbour)
            if swallowed:
                count_change -= 1
                bytes_change -= swallowed
        block.pool.insert(block)
        stats = self.stats
        if block.expandable_segment is None:
            if block.is_split:
                count_change += 1
                bytes_change += block.size
            stats.inactive_split.change(count_change, small=small)
            stats.inactive_split_bytes.change(bytes_change, small=small)
        stats.active.change(-1, small=small)
        stats.active_bytes.change(-size, small=small)
        stats.requested_bytes.change(-requested, small=small)

    def _merge(self, into: Block, other: Block | None) -> int:
        """Let ``into`` absorb a neighbour that is free and equally mapped; returns the bytes gained (try_merge_blocks)."""
        if other is None or other.is_active or other.mapped != into.mapped:
            return 0
        if other.mapped:
            other.pool.remove(other)
        else:
            other.pool.remove_unmapped(other)
        if other is into.prev:
            into.address = other.address
            into.prev = other.prev
            if into.prev is not None:
                into.prev.next = into
        else:
            into.next = other.next
            if into.next is not None:
                into.next.prev = into
        into.size += other.size
        return other.size

    # Returning

    def release_block(self, block: Block) -> None:
        """Return (cudaFree) a whole segment."""
        if block.expandable_segment is not None:
            raise internal_assert(
                "!block->expandable_segment_", "fixed in torch 2.5 (PR #134338)", line="2586"
            )
        if block.is_split:
            raise UndefinedBehaviour(
                "the real allocator would call cudaFree inside a segment here: max_split_size_mb was lowered, or set beside "
                "expandable_segments, while larger blocks were split",
                "set max_split_size_mb once, before the first allocation, and without expandable_segments",
            )
        pool, size = block.pool, block.size
        self.stats.num_device_free += 1
        self.record("segment_free", block.address, size, block.stream, pool)
        self.device.free(block.address)
        self._returned(pool, size)
        self.stats.segment.change(-1, small=pool.small)
        if size >= self.config.max_split_size:
            self.stats.oversize_segments.decrease(1)
        pool.remove(block)

    def unmap_block(self, block: Block) -> None:
        """Return the pages that lie wholly inside a free block of an expandable segment."""
        segment, pool = block.expandable_segment, block.pool
        assert segment is not None
        first, end = segment.inside(block.address, block.size)
        if first >= end:
            return
        address, size = segment.mark(first, end, mapped=False)
        self.device.unmap(address, size)
        pool.remove(block)
        before, after = address - block.address, block.address + block.size - (address + size)
        if before:
            piece = self.carve(block.stream, before, pool, block.address, segment, block)
            piece.splice(block.prev, block)
            pool.insert(piece)
        if after:
            piece = self.carve(block.stream, after, pool, address + size, segment, block)
            piece.splice(block, block.next)
            pool.insert(piece)
        block.address, block.size, block.mapped = address, size, False
        self._merge(block, block.prev)
        self._merge(block, block.next)
        pool.insert_unmapped(block)
        self._returned(pool, size)
        self.stats.num_device_free += 1
        self.record("segment_unmap", address, size, block.stream, pool)

    def release_expandable_segment(self, block: Block) -> None:
        """Give back the address range of a segment that is unmapped from end to end."""
        block.pool.remove_unmapped(block)
        self.device.unreserve(block.address)


def reserve_bytes(reserve: str, capacity: int) -> int:
    """Address space for one expandable segment; a value PyTorch would ignore with a warning means the default."""
    default = capacity + capacity // 8
    if not reserve:
        return default
    units = {"K": 1 << 10, "M": 1 << 20, "G": 1 << 30, "T": 1 << 40}
    factor = units.get(reserve[-1].upper())
    try:
        value = float(reserve[:-1]) * factor if factor else float(reserve) * capacity
    except ValueError:
        return default
    return int(value) if 0 < value < 1 << 63 else default


def _least_extensible(free: list[Any], index: int) -> int:
    """Walk down to a block that would need less new address space, as long as each next one does."""
    while free[index][4].expandable_segment is not None and index + 1 < len(free):
        here, there = free[index], free[index + 1]
        if there[0] != here[0] or _extended(there[4]) >= _extended(here[4]):
            break
        index += 1
    return index


def _extended(block: Block) -> int:
    following = block.next
    return block.size + (following.size if following is not None and not following.mapped else 0)


def _address_space(block: Block | None, enough: int) -> int:
    """Bytes of this block and its inactive successors, counted until they are enough."""
    total = 0
    while total < enough and block is not None and not block.is_active:
        total += block.size
        block = block.next
    return total
