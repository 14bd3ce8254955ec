"""Giving memory back to the driver: garbage collection, oversized blocks, and the full flush.

Each function is the step of the same name in DeviceCachingAllocator; the order in which malloc tries them is in ``caching``.
"""

from __future__ import annotations

from vramdoc.allocator.blocks import Block, BlockPool
from vramdoc.allocator.config import UNLIMITED
from vramdoc.allocator.heap import Heap


def garbage_collect_cached_blocks(heap: Heap) -> None:
    """Free the older unsplit segments of the default large pool while use is above the threshold.

    Age counts searches of the pool since a block became free. A round frees every block of at least average age and is not
    cut short when enough is freed.
    """
    limit = heap.limit
    assert limit is not None
    threshold = int(heap.config.garbage_collection_threshold * limit)
    if heap.total_allocated <= threshold:
        return
    target, reclaimed, pool = heap.total_allocated - threshold, 0, heap.large
    candidates = [entry[4] for entry in pool.free if _collectable(heap, entry[4])]
    total_age, count = sum(_age(pool, block) for block in candidates), len(candidates)
    freed_some = True
    while reclaimed < target and freed_some and count > 0:
        freed_some, average = False, total_age / count
        for block in [entry[4] for entry in pool.free]:
            if _collectable(heap, block) and _age(pool, block) >= average:
                freed_some = True
                reclaimed += block.size
                total_age -= _age(pool, block)
                count -= 1
                heap.release_block(block)


def _collectable(heap: Heap, block: Block) -> bool:
    if block.is_split:
        return False
    return heap.rules.asserts_on_expandable or block.expandable_segment is None


def _age(pool: BlockPool, block: Block) -> int:
    return pool.searches - block.gc_base


def release_available_cached_blocks(heap: Heap, pool: BlockPool, stream: int, size: int) -> bool:
    """With max_split_size_mb: free one oversized block that is large enough, else the largest ones until it adds up."""
    oversize = heap.config.max_split_size
    if oversize == UNLIMITED:
        return False
    wanted = max(size, oversize)
    index = pool.lower_bound(stream, wanted)
    keeps_expandable = not heap.rules.asserts_on_expandable
    if index < len(pool.free):
        block = pool.free[index][4]
        if block.stream == stream and not (keeps_expandable and block.expandable_segment):
            heap.release_block(block)
            return True
    released = 0
    while index > 0 and released < wanted:
        index -= 1
        block = pool.free[index][4]
        if block.stream != stream or block.size < oversize:
            break
        if keeps_expandable and block.expandable_segment:
            continue
        released += block.size
        heap.release_block(block)
    return released >= wanted


def release_blocks(heap: Heap, pool: BlockPool) -> None:
    """Return every segment that is wholly free, then every wholly free page of expandable ones."""
    free = [entry[4] for entry in pool.free]
    for block in free:
        if block.expandable_segment is None and not block.is_split:
            heap.release_block(block)
    for block in free:
        if block.expandable_segment is not None:
            heap.unmap_block(block)
            if not block.is_split:
                heap.release_expandable_segment(block)
