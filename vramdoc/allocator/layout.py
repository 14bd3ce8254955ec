"""The heap as torch.cuda.memory._snapshot() shows it: segments, blocks and trace entries as plain dicts."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from vramdoc.allocator.blocks import Block, PoolId
from vramdoc.allocator.heap import Event, Heap


def segments(heap: Heap, *, only: PoolId | None = None) -> list[dict[str, Any]]:
    """Segments by address, or those of one pool; of an expandable segment, each maximal mapped run is one."""
    heads = (
        block
        for block in _mapped_blocks(heap)
        if (block.prev is None or not block.prev.mapped) and only in (None, block.pool.id)
    )
    return [_segment(heap, head) for head in sorted(heads, key=lambda block: block.address)]


def _mapped_blocks(heap: Heap) -> Iterable[Block]:
    yield from heap.active.values()
    for pool in heap.pools():
        for entry in pool.free:
            yield entry[4]


def _segment(heap: Heap, head: Block) -> dict[str, Any]:
    run: list[Block] = []
    block: Block | None = head
    while block is not None and block.mapped:
        run.append(block)
        block = block.next
    active = [block for block in run if block.is_active]
    return {
        "device": heap.device.index,
        "address": head.address,
        "total_size": sum(block.size for block in run),
        "allocated_size": sum(block.size for block in run if block.allocated),
        "active_size": sum(block.size for block in active),
        "requested_size": sum(block.requested_size for block in active),
        "stream": head.stream,
        "segment_type": "small" if head.pool.small else "large",
        "segment_pool_id": head.pool.id,
        "is_expandable": head.expandable_segment is not None,
        "frames": [],
        "blocks": [_block(block) for block in run],
    }


def _block(block: Block) -> dict[str, Any]:
    waiting = "active_pending_free" if block.is_active else "inactive"
    return {
        "address": block.address,
        "size": block.size,
        "requested_size": block.requested_size,
        "state": "active_allocated" if block.allocated else waiting,
        "frames": [],
    }


def returnable_bytes(heap: Heap) -> int:
    """What a flush would return now: wholly free segments and pages, outside private pools."""
    total = 0
    for pool in (heap.small, heap.large):
        for _, size, _, address, block in pool.free:
            if block.expandable_segment is not None:
                first, end = block.expandable_segment.inside(address, size)
                total += max(end - first, 0) * block.expandable_segment.page
            elif not block.is_split:
                total += size
    return total


def trace_entries(events: Iterable[Event]) -> list[dict[str, Any]]:
    """Events as the entries of a device trace."""
    return [
        {
            "action": action,
            "device_free" if action == "oom" else "addr": address,
            "size": size,
            "stream": stream,
            "pool_id": pool,
        }
        for action, address, size, stream, pool in events
    ]
