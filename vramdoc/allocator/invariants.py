"""What must hold between any two calls. Tests call ``check`` after every step; a release does not need it.

segments tile           blocks follow one another without gap or overlap, each segment's from end to end
free is merged          no two free neighbours are both mapped or both unmapped
free sets are complete  a mapped free block is in its pool's set and nowhere else; sets are in order
sums                    reserved = mapped bytes = what the driver is charged; the statistics are those of the blocks
"""

from __future__ import annotations

from collections.abc import Iterator

from vramdoc.allocator.blocks import Block
from vramdoc.allocator.caching import CachingAllocator
from vramdoc.allocator.device import PAGE
from vramdoc.allocator.heap import Heap


class Violation(AssertionError):
    """An invariant that does not hold."""


def check(allocator: CachingAllocator) -> None:
    """Check all invariants.

    Raises:
        Violation: with the first that does not hold.
    """
    heap = allocator.heap
    blocks = list(_all_blocks(heap))
    for block in blocks:
        _check_neighbours(block)
        _check_pages(block)
    _check_sets(heap, blocks)
    _check_sums(heap, blocks)


def _require(holds: bool, what: str) -> None:  # noqa: FBT001 - reads as an assertion
    if not holds:
        raise Violation(what)


def _all_blocks(heap: Heap) -> Iterator[Block]:
    yield from heap.active.values()
    for pool in heap.pools():
        yield from (entry[4] for entry in pool.free)
        yield from (entry[2] for entry in pool.unmapped)


def _check_neighbours(block: Block) -> None:
    following = block.next
    if following is None:
        return
    where = f"at {block.address:#x}"
    _require(following.prev is block, f"links disagree {where}")
    _require(block.address + block.size == following.address, f"a gap or overlap {where}")
    _require(
        block.pool is following.pool and block.stream == following.stream,
        f"a mixed segment {where}",
    )
    unmerged = not block.is_active and not following.is_active and block.mapped == following.mapped
    # Unmapping leaves page remainders beside each other only with an unmapped part between them.
    _require(not unmerged, f"free neighbours that were not merged {where}")


def _check_pages(block: Block) -> None:
    segment = block.expandable_segment
    if segment is None:
        return
    first, end = segment.covering(block.address, block.size)
    if block.mapped:
        _require(
            all(segment.mapped[first:end]),
            f"a mapped block on unmapped pages at {block.address:#x}",
        )
    else:
        inside = segment.inside(block.address, block.size)
        _require(
            (first, end) == inside,
            f"an unmapped block that ends inside a page at {block.address:#x}",
        )
        _require(
            not any(segment.mapped[first:end]),
            f"an unmapped block on mapped pages at {block.address:#x}",
        )


def _check_sets(heap: Heap, blocks: list[Block]) -> None:
    _require(len({id(block) for block in blocks}) == len(blocks), "a block is in two sets")
    heads = [block for block in blocks if block.prev is None]
    reached = 0
    for head in heads:
        block: Block | None = head
        while block is not None:
            reached += 1
            block = block.next
    _require(reached == len(blocks), "a block is in a segment but in no set")
    for pool in heap.pools():
        keys = [entry[:4] for entry in pool.free]
        _require(keys == sorted(keys), "a free set is out of order")
        for stream, size, tie, address, block in pool.free:
            _require(
                (stream, size, tie, address)
                == (block.stream, block.size, block.tie, block.address),
                f"a free block changed in its set at {address:#x}",
            )
            _require(
                block.mapped and not block.is_active,
                f"a used block in the free set at {address:#x}",
            )
    for address, block in heap.active.items():
        _require(
            block.is_active and block.address == address,
            f"an inactive block counts as active at {address:#x}",
        )


def _check_sums(heap: Heap, blocks: list[Block]) -> None:
    stats = heap.stats
    mapped = sum(block.size for block in blocks if block.mapped)
    charged = sum(
        block.size if block.expandable_segment is not None else 0
        for block in blocks
        if block.mapped
    ) + sum(-(-total // PAGE) * PAGE for total in _classic_segments(blocks))
    active = [block for block in blocks if block.is_active]
    allocated = [block for block in blocks if block.allocated]
    split = [
        block
        for block in blocks
        if block.expandable_segment is None and not block.is_active and block.is_split
    ]
    pairs = {
        "total_allocated": (heap.total_allocated, mapped),
        "driver": (heap.device.used, charged),
        "reserved_bytes": (stats.reserved_bytes.all.current, mapped),
        "active": (stats.active.all.current, len(active)),
        "active_bytes": (stats.active_bytes.all.current, sum(block.size for block in active)),
        "requested_bytes": (
            stats.requested_bytes.all.current,
            sum(block.requested_size for block in active),
        ),
        "allocation": (stats.allocation.all.current, len(allocated)),
        "allocated_bytes": (
            stats.allocated_bytes.all.current,
            sum(block.size for block in allocated),
        ),
        "inactive_split": (stats.inactive_split.all.current, len(split)),
        "inactive_split_bytes": (
            stats.inactive_split_bytes.all.current,
            sum(block.size for block in split),
        ),
        "segment": (stats.segment.all.current, len(_classic_segments(blocks))),
    }
    for name, (counted, found) in pairs.items():
        _require(counted == found, f"{name} counts {counted}, the blocks say {found}")
    for name in stats.BY_POOL:
        stat = getattr(stats, name)
        parts = stat.small.current + stat.large.current
        _require(stat.all.current == parts, f"{name}: small and large do not add up")


def _classic_segments(blocks: list[Block]) -> list[int]:
    totals = []
    for head in blocks:
        if head.prev is None and head.expandable_segment is None:
            total, block = 0, head
            while True:
                total += block.size
                if block.next is None:
                    break
                block = block.next
            totals.append(total)
    return totals
