"""Frees that wait: blocks that other streams used, their events, and the order in which PyTorch completes them.

Names follow DeviceCachingAllocator: stream_uses, insert_events, process_events, synchronize_and_free_events. It does not know when
the allocator looks at events or flushes (``caching``).
"""

from __future__ import annotations

from collections.abc import Iterable
from functools import partial

from vramdoc.allocator.blocks import Block, PrivatePool
from vramdoc.allocator.flat_hash import FlatHash, stream_hash
from vramdoc.allocator.heap import Heap


class PendingFrees:
    """All blocks of one device that were freed and are not free yet."""

    def __init__(self, heap: Heap) -> None:
        self._heap = heap
        self._hash = partial(stream_hash, device=heap.device.index)
        self._queues: dict[int, list[Block]] = {}
        """Blocks that wait for an event, by the stream whose event it is, in order of recording (cuda_events)."""
        self._streams = FlatHash(self._hash)
        """The streams in ``_queues``, in the order in which PyTorch visits them."""
        self._held: dict[Block, None] = {}
        """Blocks whose completion comes from outside, oldest first."""
        self._used_in_capture: dict[Block, set[int]] = {}
        """Streams recorded during a capture: they are done when it ends, so they need no event."""
        self._deferred: list[Block] = []
        """Blocks freed during a capture whose events wait until it ends."""

    def use(self, block: Block, stream: int, *, in_capture: bool) -> None:
        """Note that another stream uses the block (recordStream)."""
        if stream == block.stream:
            return
        if block.stream_uses is None:
            block.stream_uses = FlatHash(self._hash)
        block.stream_uses.add(stream)
        if in_capture:
            self._used_in_capture.setdefault(block, set()).add(stream)

    def free(self, block: Block, *, in_capture: bool) -> None:
        """Complete the free of a block that no other stream used; else let it wait."""
        if block.stream_uses is None:
            self._heap.join_free(block)
        elif in_capture:
            self._deferred.append(block)
        else:
            self._insert_events(block)

    def hold(self, block: Block) -> None:
        """Let a freed block wait for ``complete``, or for the next flush."""
        block.event_count = 1
        self._held[block] = None

    def adopt(self, blocks: Iterable[Block]) -> None:
        """Take over blocks that waited before (``restore``)."""
        self._held = dict.fromkeys(blocks)

    def complete(self, block: Block) -> None:
        """Finish the free of a held block; nothing happens where a flush has done so."""
        if block in self._held:
            del self._held[block]
            self._finish([block])

    def process_events(self) -> None:
        """Complete the frees whose events are done; a stream's first unfinished event holds up those behind it."""
        self._insert_deferred_events()
        if not self._queues or not self._heap.device.events_ready:
            return

        def still_waits(stream: int) -> bool:
            self._finish(self._queues.pop(stream))
            return False

        self._streams.visit(still_waits)

    def synchronize(self, only: PrivatePool | None = None) -> None:
        """Wait for every event, or for those of one private pool (synchronize_and_free_events)."""
        self._heap.stats.num_sync_all_streams += 1
        self._insert_deferred_events()

        def still_waits(stream: int) -> bool:
            blocks = self._queues.pop(stream)
            self._finish([block for block in blocks if only is None or block.pool.owner is only])
            left = [block for block in blocks if only is not None and block.pool.owner is not only]
            if left:
                self._queues[stream] = left
            return bool(left)

        self._streams.visit(still_waits)
        if only is None:
            held, self._held = list(self._held), {}
            self._finish(held)

    def _insert_events(self, block: Block) -> None:
        streams, block.stream_uses = block.stream_uses, None
        assert streams is not None
        block.event_count = len(streams)
        for stream in streams:
            self._streams.add(stream)
            self._queues.setdefault(stream, []).append(block)

    def _insert_deferred_events(self) -> None:
        deferred, self._deferred = self._deferred, []
        for block in deferred:
            done = self._used_in_capture.pop(block, set())
            uses, block.stream_uses = block.stream_uses, FlatHash(self._hash)
            for stream in uses or ():
                if stream not in done:
                    block.stream_uses.add(stream)
            self._insert_events(block)
            if block.event_count == 0:
                self._heap.join_free(block)

    def _finish(self, blocks: list[Block]) -> None:
        for block in blocks:
            block.event_count -= 1
            if block.event_count == 0:
                self._heap.join_free(block)
