"""CachingAllocator: PyTorch's CUDA caching allocator for one device, exact to the byte.

This module holds the order of things: what malloc tries and in which order, when a free completes, what is reported. How
memory is cut and returned is in ``heap`` and ``reclaim``; which pool serves whom in ``scopes``. It knows no files, no clock
and no torch.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from math import floor
from typing import Any

from vramdoc.allocator import reclaim
from vramdoc.allocator.blocks import DEFAULT_POOL, Block, BlockPool, PoolId, PrivatePool
from vramdoc.allocator.config import AllocatorConfig, ConfigError
from vramdoc.allocator.device import Device
from vramdoc.allocator.errors import (
    AllocatorError,
    OomFigures,
    OutOfMemory,
    UnknownAddress,
    internal_assert,
    out_of_memory,
    rejection,
)
from vramdoc.allocator.heap import EventSink, Heap
from vramdoc.allocator.layout import returnable_bytes, segments, trace_entries
from vramdoc.allocator.pending import PendingFrees
from vramdoc.allocator.releases import rules_for
from vramdoc.allocator.restore import restore_segments
from vramdoc.allocator.scopes import Scope, Scopes
from vramdoc.allocator.sizes import allocation_size, round_size
from vramdoc.allocator.statistics import Statistics
from vramdoc.errors import UsageError

LARGEST_TENSOR = 1 << 60
"""Requests from one EB on are refused before the allocator sees them."""


class CachingAllocator:
    """What torch.cuda's functions of the same names do on one device.

    Args:
        config: settings in force at start-up.
        device: the driver's side; it may be shared with other allocators.
        release: torch release to imitate; that of ``config`` when not given.
        history: whether to keep the trace of events.

    Raises:
        UsageError: ``config`` selects cudaMallocAsync, which is NVIDIA's allocator and is never simulated.
        ConfigError: ``config`` was parsed for another release, and this one refuses its text.
    """

    def __init__(
        self,
        config: AllocatorConfig,
        device: Device,
        release: str | None = None,
        *,
        history: bool = True,
    ) -> None:
        rules = rules_for(release or config.release)
        config = config.for_release(rules.release)
        if config.backend != "native":
            raise UsageError(
                f"backend:{config.backend} is NVIDIA's allocator, not PyTorch's: it cannot be simulated",
                "compare it by rerunning on a real GPU",
            )
        self.rules = rules
        self.device = device
        self.current_stream = 0
        """torch.cuda.current_stream(): while a graph is captured on it, events and flushes are suspended."""
        self._heap = Heap(config, device, rules)
        self._heap.events = [] if history else None
        self._scopes = Scopes(self._heap, rules)
        self._first_max_split_size = config.max_split_size
        self._pending = PendingFrees(self._heap)
        if rules.whole_fraction_lifts_limit:
            self.set_per_process_memory_fraction(config.per_process_memory_fraction)

    @property
    def config(self) -> AllocatorConfig:
        """The settings in force."""
        return self._heap.config

    # Requests

    def malloc(self, size: int, stream: int = 0, pool: PoolId | None = None) -> int:
        """Allocate ``size`` bytes for ``stream``; returns the address, 0 for an empty request.

        Args:
            size: requested bytes.
            stream: pointer value of the stream; 0 is the default stream.
            pool: where a recording says the request was served from; None leaves it to the open scopes.

        Raises:
            OutOfMemory: with PyTorch's text and numbers.
        """
        if size == 0:
            return 0
        if size >= LARGEST_TENSOR:
            raise OutOfMemory("CUDA out of memory. Tried to allocate more than 1EB memory.")
        if not self._scopes.capturing(stream):
            self._pending.process_events()
        heap, config = self._heap, self._heap.config
        rounded = round_size(size, config.roundup_power2_divisions)
        half = self._scopes.choose(rounded, stream, pool)
        expandable = self._expandable(half)
        block = heap.get_free_block(half, stream, rounded, expandable=expandable)
        if block is None:
            block = self._obtain(half, stream, size, rounded, expandable=expandable)
            from_elsewhere = block.pool is not half
            expandable = expandable and (
                not from_elsewhere or self.rules.use_on_oom_takes_expandable
            )
        return self._hand_out(block, size, rounded, expandable=expandable)

    def free(self, address: int) -> None:
        """Free what ``malloc`` returned; it completes at once unless other streams used the block.

        Raises:
            UnknownAddress: nothing is allocated there.
        """
        if address == 0:
            return
        block = self._requested_free(address)
        self._pending.free(block, in_capture=self._scopes.capturing(self.current_stream))

    def record_stream(self, address: int, stream: int) -> None:
        """Say that ``stream`` uses the block, so that its free waits for that stream."""
        in_capture = self._scopes.capturing(self.current_stream)
        self._pending.use(self._allocated(address), stream, in_capture=in_capture)

    def hold(self, address: int) -> Block:
        """Free, but wait for ``complete``: how a replay puts a recorded free_completed where it was.

        A flush completes it as well, as it waits for every event.
        """
        block = self._requested_free(address)
        self._pending.hold(block)
        return block

    def complete(self, block: Block) -> None:
        """Finish the free of a block from ``hold`` or ``restore``; nothing happens where a flush has done so."""
        self._pending.complete(block)

    def empty_cache(self, pool: PoolId = DEFAULT_POOL) -> None:
        """torch.cuda.empty_cache(): complete pending frees and return all memory that is wholly free.

        Given a private pool, only that of the pool, which must not be in use.
        """
        self._release_cached_blocks(pool, self.current_stream)

    def has_cached(self, size: int, stream: int = 0, pool: PoolId | None = None) -> bool:
        """Whether ``malloc`` would serve the request from the cache; nothing changes."""
        rounded = round_size(size, self._heap.config.roundup_power2_divisions)
        half = self._scopes.choose(rounded, stream, pool)
        return self._heap.find(half, stream, rounded, expandable=self._expandable(half)) is not None

    # Settings

    def set_per_process_memory_fraction(self, fraction: float) -> None:
        """Limit this process to ``fraction`` of the device's total memory.

        Raises:
            UsageError: the fraction is not between 0 and 1.
        """
        if not 0.0 <= fraction <= 1.0:
            raise UsageError(f"Invalid fraction value: {fraction}. Allowed range: 0~1")
        if self.rules.whole_fraction_lifts_limit and fraction == 1.0:
            self._heap.limit = None
            return
        limit = fraction * self.device.capacity
        self._heap.limit = floor(limit + 0.5) if self.rules.rounds_limit else int(limit)

    def set_allocator_settings(self, text: str) -> None:
        """torch.cuda.memory._set_allocator_settings: a whole new setting at run time.

        Raises:
            ConfigError: the release refuses it; what was read before the bad part is in force, as in PyTorch.
        """
        try:
            self._heap.config = self._heap.config.reset(text)
        except ConfigError as error:
            self._heap.config = error.partial
            raise

    # Private pools

    def create_pool(
        self, *, use_on_oom: bool = False, no_split: bool = False, custom_allocator: bool = False
    ) -> PoolId:
        """torch.cuda.MemPool(...): a private pool that lives until ``release_pool``."""
        pool = PrivatePool(
            self._scopes.new_id("user"),
            use_on_oom=use_on_oom,
            no_split=no_split,
            custom_allocator=custom_allocator,
        )
        self._scopes.create(pool)
        return pool.id

    @contextmanager
    def use_pool(self, pool: PoolId) -> Iterator[None]:
        """torch.cuda.use_mem_pool: every request inside is served from ``pool``."""
        self._scopes.begin(Scope(pool, None, capture=False))
        try:
            yield
        finally:
            self._scopes.end(pool)
            self._scopes.release(pool)

    def destroy_pool(self, pool: PoolId) -> None:
        """The MemPool object goes: one use less, and its free memory is returned at once."""
        if not self.rules.mempool_object_holds_pool:
            return
        self._scopes.release(pool)
        if pool in {freeable.id for freeable in self._scopes.freeable()}:
            self._release_cached_blocks(pool, self.current_stream)

    def begin_capture(self, stream: int, pool: PoolId | None = None) -> PoolId:
        """Start capturing a CUDA graph on ``stream``, into ``pool`` or one of its own."""
        pool = pool or self._scopes.new_id("graph")
        self._scopes.begin(Scope(pool, frozenset((stream,)), capture=True))
        return pool

    def end_capture(self, pool: PoolId) -> None:
        """The capture ends; the graph keeps the pool in use until ``release_pool``."""
        self._scopes.end(pool)

    def release_pool(self, pool: PoolId) -> None:
        """A graph or handle lets go of the pool; at the last use its free memory may be returned by a flush."""
        self._scopes.release(pool)

    def restore(self, segments: Iterable[Mapping[str, Any]]) -> Mapping[int, Block]:
        """Start from a recorded layout, in the schema of ``segments``; see ``restore`` for what is assumed.

        Returns:
            Blocks that waited for an event, by address: they can be given to ``complete``.

        Raises:
            UsageError: something was allocated already.
            Contradiction: the segments do not add up.
        """
        if self._heap.total_allocated:
            raise UsageError("a layout can only be restored into an unused allocator")
        pending = restore_segments(self._heap, segments)
        self._pending.adopt(pending)
        return {block.address: block for block in pending}

    # Reports

    def memory_stats(self) -> Mapping[str, int]:
        """torch.cuda.memory_stats(): the same keys, in the same order."""
        return self._heap.stats.flat(
            max_split_size=self._first_max_split_size,
            rejections=self.rules.counts_rejections,
            private_pools=self.rules.counts_private_pools,
        )

    def reset_peak_memory_stats(self) -> None:
        """torch.cuda.reset_peak_memory_stats()."""
        self._heap.stats.reset_peaks()

    def reset_accumulated_memory_stats(self) -> None:
        """torch.cuda.reset_accumulated_memory_stats()."""
        self._heap.stats.reset_accumulated()

    def segments(self) -> list[dict[str, Any]]:
        """torch.cuda.memory._snapshot()["segments"], by address."""
        return segments(self._heap, only=self._scopes.context)

    def trace(self) -> list[dict[str, Any]]:
        """The events so far, oldest first, as in _snapshot()["device_traces"] but without times and stacks."""
        events = self._heap.events
        return trace_entries(events if isinstance(events, list) else [])

    def returnable_bytes(self) -> int:
        """Bytes that ``empty_cache`` would return now, private pools apart."""
        return returnable_bytes(self._heap)

    @property
    def statistics(self) -> Statistics:
        """The counters behind ``memory_stats``, live."""
        return self._heap.stats

    @property
    def heap(self) -> Heap:
        """The blocks themselves, for ``invariants`` and for engines that take over from here."""
        return self._heap

    def record_into(self, events: EventSink | None) -> None:
        """Send events there from now on, None to keep none; ``trace`` returns what a list has collected."""
        self._heap.events = events

    def snapshot(self) -> dict[str, Any]:
        """torch.cuda.memory._snapshot(): segments and trace; the trace then notes that a snapshot was taken."""
        shown = self.segments()
        taken = {"segments": shown, "device_traces": [self.trace()]}
        active = sum(segment["active_size"] for segment in shown)
        self._heap.record("snapshot", 0, active, 0, self._heap.small)
        return taken

    # malloc, step by step

    def _expandable(self, pool: BlockPool) -> bool:
        """Whether expandable segments serve this request."""
        if not self._heap.config.expandable_segments:
            return False
        return pool.owner is None or not pool.owner.custom_allocator

    def _obtain(
        self, pool: BlockPool, stream: int, size: int, rounded: int, *, expandable: bool
    ) -> Block:
        """What malloc tries when no free block serves, in PyTorch's order."""
        heap = self._heap
        wanted = allocation_size(rounded, heap.config.large_segment_size)
        if heap.collects_garbage:
            reclaim.garbage_collect_cached_blocks(heap)

        def alloc_block() -> Block | None:
            if heap.limit is not None and heap.total_allocated + wanted > heap.limit:
                return None
            self._reject(size, wanted)
            if expandable and self.rules.mempool_refuses_expandable and self._scopes.inside_mempool:
                raise AllocatorError(
                    "torch.cuda.MemPool doesn't currently support expandable_segments.",
                    "torch 2.8 and newer do",
                )
            if expandable and (pool.owner is None or self.rules.expandable_private_pools):
                return heap.try_allocate_expandable_block(pool, stream, rounded)
            return heap.malloc_segment(pool, stream, wanted)

        block = alloc_block()
        fallback_first = self.rules.use_on_oom_spares_cache
        if block is None and fallback_first:
            block = self._mempool_fallback(pool, stream, rounded)
        if block is None and reclaim.release_available_cached_blocks(heap, pool, stream, rounded):
            block = alloc_block()
        if block is None and not self._scopes.capturing(stream):
            self._release_cached_blocks(DEFAULT_POOL, stream)
            heap.stats.num_alloc_retries += 1
            block = alloc_block()
        if block is None and not fallback_first:
            block = self._mempool_fallback(pool, stream, rounded)
        if block is None:
            raise self._out_of_memory(pool, stream, size, rounded, wanted)
        return block

    def _reject(self, size: int, wanted: int) -> None:
        """throw_on_cudamalloc_oom: refuse at once what exceeds the fraction in the settings."""
        heap = self._heap
        if not heap.config.throw_on_cudamalloc_oom:
            return
        most = int(heap.config.per_process_memory_fraction * self.device.capacity)
        if heap.total_allocated + wanted > most:
            heap.stats.num_oom_rejections += 1
            raise rejection(size)

    def _mempool_fallback(self, pool: BlockPool, stream: int, rounded: int) -> Block | None:
        """A free block of a MemPool(use_on_oom=True), for requests of the default pool only."""
        if pool.owner is not None:
            return None
        expandable = (
            self._heap.config.expandable_segments and self.rules.use_on_oom_takes_expandable
        )
        for owner in self._scopes.on_oom():
            self._scopes.begin(Scope(owner, None, capture=False))
            half = self._scopes.choose(rounded, stream)
            block = self._heap.get_free_block(half, stream, rounded, expandable=expandable)
            self._scopes.end(owner)
            self._scopes.release(owner)
            if block is not None:
                return block
        return None

    def _hand_out(self, block: Block, size: int, rounded: int, *, expandable: bool) -> int:
        """Split if worth it, mark as allocated, count (alloc_found_block)."""
        heap, stats, small = self._heap, self._heap.stats, block.pool.small
        was_split, classic = block.is_split, block.expandable_segment is None
        if heap.should_split(block, rounded, expandable=expandable):
            rest, block = block, heap.split(block, rounded)
            if classic and was_split:
                stats.inactive_split_bytes.change(-block.size, small=small)
            elif classic:
                stats.inactive_split_bytes.change(rest.size, small=small)
                stats.inactive_split.change(1, small=small)
        elif classic and was_split:
            stats.inactive_split_bytes.change(-block.size, small=small)
            stats.inactive_split.change(-1, small=small)
        block.allocated = True
        block.requested_size = size
        heap.active[block.address] = block
        heap.record("alloc", block.address, size, block.stream, block.pool)
        heap.count_active(block)
        return block.address

    def _out_of_memory(
        self, pool: BlockPool, stream: int, size: int, rounded: int, wanted: int
    ) -> OutOfMemory:
        heap = self._heap
        heap.record("oom", self.device.free_bytes, rounded, stream, pool)
        heap.stats.num_ooms += 1
        private = sum(
            half.free_bytes
            for owner in heap.private.values()
            for half in (owner.small, owner.large)
        )
        allocated = heap.stats.allocated_bytes.all.current
        figures = OomFigures(
            requested=size,
            tried=wanted,
            total=self.device.capacity,
            free=self.device.free_bytes,
            allocated=allocated + private,
            private_pools=private,
            unallocated=heap.stats.reserved_bytes.all.current - allocated - private,
            allowed=heap.limit,
        )
        return out_of_memory(
            figures,
            self.rules,
            device=self.device.index,
            expandable=heap.config.expandable_segments,
        )

    # free, step by step

    def _allocated(self, address: int) -> Block:
        block = self._heap.active.get(address)
        if block is None or not block.allocated:
            raise UnknownAddress(f"nothing is allocated at {address:#x}")
        return block

    def _requested_free(self, address: int) -> Block:
        block, heap = self._allocated(address), self._heap
        block.allocated = False
        heap.record("free_requested", address, block.requested_size, block.stream, block.pool)
        small = block.pool.small
        heap.stats.allocation.change(-1, small=small)
        heap.stats.allocated_bytes.change(-block.size, small=small)
        if block.size >= heap.config.max_split_size:
            heap.stats.oversize_allocations.decrease(1)
        return block

    def _release_cached_blocks(self, pool: PoolId, stream: int) -> None:
        """Return what is wholly free: the default pools and unused private ones, or one unused private pool."""
        heap = self._heap
        if self._scopes.capturing(stream):
            if self.rules.mempool_is_context and self._scopes.inside_mempool:
                return
            if self.rules.empty_cache_asserts_in_capture or pool != DEFAULT_POOL:
                heap.stats.num_sync_all_streams += 1
                raise internal_assert(
                    "captures_underway.empty()", "do it after the capture or scope"
                )
        if pool == DEFAULT_POOL and not self._scopes.capturing(stream):
            self._pending.synchronize()
            reclaim.release_blocks(heap, heap.large)
            reclaim.release_blocks(heap, heap.small)
        for private in self._scopes.freeable():
            if pool not in (DEFAULT_POOL, private.id):
                continue
            if pool == private.id:
                self._pending.synchronize(private)
            reclaim.release_blocks(heap, private.small)
            reclaim.release_blocks(heap, private.large)
        self._scopes.forget_empty()
