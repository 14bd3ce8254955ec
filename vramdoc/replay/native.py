"""The simulator with its inner loop in C: the same answers, some forty times faster.

Python restores the start and hands over its blocks, settings and requests; C carries the requests out and fills in the same
statistics. Why there is a second implementation at all is in docs/replay-speed.md.
"""

from __future__ import annotations

import ctypes
from ctypes import POINTER, c_int16, c_int32, c_int64, c_uint8, c_uint64
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from vramdoc.allocator.blocks import Block
from vramdoc.allocator.heap import Heap, reserve_bytes
from vramdoc.allocator.statistics import PoolStat, Stat, Statistics
from vramdoc.errors import VramdocError
from vramdoc.facts import Source
from vramdoc.native import Library, load
from vramdoc.replay import structs
from vramdoc.replay.engines import AtPeak, Divergence, Engine, Failure, Job, Outcome, Timeline
from vramdoc.replay.follow import beyond, describe
from vramdoc.replay.from_trace import FREE_REQUESTED, OOM
from vramdoc.replay.simulate import STOPS, Simulator, prepare

if TYPE_CHECKING:
    from collections.abc import Iterator

_INNER = Path(__file__).parent / "inner"
_LIBRARY = Library(
    title="the simulator",
    name="replay",
    file="replay.so",
    sources=(_INNER / "replay.c",),
    headers=(_INNER / "replay.h",),
    flags=("-O2",),
)
_NONE = (1 << 64) - 1


def simulator() -> Engine:
    """The fastest simulator this machine has: the compiled one, or the reference where there is no C compiler."""
    return NativeSimulator() if load(_LIBRARY) is not None else Simulator()


class NativeSimulator:
    """The allocator in C."""

    source = Source.REPLAYED

    def run(self, job: Job) -> Outcome:
        """See ``Engine``.

        Raises:
            VramdocError: this machine has no memory left for the replay itself.
        """
        library = load(_LIBRARY)
        assert library is not None, "ask simulator() for an engine that exists"
        return _Call(job).outcome(library)


class _Call:
    """One call into C: twins filled, and read back."""

    def __init__(self, job: Job) -> None:
        self.job = job
        # C follows the trace's own columns; the reference's list of events would only cost time.
        self.allocator, _ = prepare(replace(job, follow=None))
        self.heap = self.allocator.heap
        if job.follow is not None:
            self.heap.device.next_address = max(self.heap.device.next_address, beyond(job.follow))
        self.kept: list[Any] = []
        """Arrays that C reads; they must outlive the call."""
        pools = job.requests.pools
        self.pools = {pool: index for index, pool in enumerate(pools)}
        for pool in self.heap.private:
            self.pools.setdefault(pool, len(self.pools))
        self.private = (structs.Stat * (structs.POOL_KINDS * len(self.pools)))()
        self.explicit = np.zeros(len(job.requests), np.uint8)
        self.columns = np.zeros((3, len(job.requests)), np.int64) if job.timeline else None

    def outcome(self, library: ctypes.CDLL) -> Outcome:
        out = structs.Outcome()
        self._statistics_out(out)
        call = self._job()
        if library.vramdoc_replay(ctypes.byref(call), ctypes.byref(out)):
            raise VramdocError("there is not enough memory on this machine for the replay")
        self._statistics_back(out)
        return Outcome(
            stats=self.allocator.memory_stats(),
            peak=AtPeak(**{name: getattr(out.peak, name) for name in structs.LEVELS}),
            operations=out.operations,
            failure=self._failure(out),
            avoided=out.avoided,
            divergence=self._divergence(out) if out.ending == structs.DIVERGED else None,
            undefined=STOPS.get(
                {structs.UNDEFINED: "undefined", structs.ASSERTION: "assertion"}.get(
                    out.ending, ""
                ),
                "",
            ),
            explicit=tuple(np.flatnonzero(self.explicit).tolist()),
            timeline=self._timeline(out.operations),
        )

    # Towards C

    def _job(self) -> structs.Job:
        job, device, requests = self.job, self.heap.device, self.job.requests
        rules = self._rules()
        start = self._start()
        self.kept += [rules, start]
        call = structs.Job(
            rules=ctypes.pointer(rules),
            driver=structs.Driver(device.capacity, device.in_use, device.used, device.next_address),
            pools=len(self.pools),
            blocks=requests.blocks,
            start_count=len(start),
            counter=self.heap.counter,
            start=start,
            requests=structs.Columns(
                len(requests),
                self._column(requests.op, np.uint8, c_uint8),
                self._column(requests.block, np.int32, c_int32),
                self._column(requests.size, np.int64, c_int64),
                self._column(requests.stream, np.int64, c_int64),
                self._column(requests.pool, np.int16, c_int16),
            ),
            private_reserved=self.private,
            explicit_flushes=self._column(self.explicit, np.uint8, c_uint8),
        )
        if job.follow is not None:
            call.recorded = self._recorded()
        if self.columns is not None:
            call.reserved, call.active, call.allocated = (
                self._column(row, np.int64, c_int64) for row in self.columns
            )
        return call

    def _column(self, values: Any, dtype: Any, kind: Any) -> Any:
        array = np.ascontiguousarray(values, dtype)
        self.kept.append(array)
        return array.ctypes.data_as(POINTER(kind))

    def _rules(self) -> structs.Rules:
        config, traits, capacity = self.job.config, self.allocator.rules, self.heap.device.capacity
        reject = _NONE
        if config.throw_on_cudamalloc_oom:
            reject = int(config.per_process_memory_fraction * capacity)
        return structs.Rules(
            max_split_size=config.max_split_size,
            max_non_split_rounding=config.max_non_split_rounding,
            large_segment_size=config.large_segment_size,
            divisions=(c_uint64 * 16)(*config.roundup_power2_divisions),
            gc_threshold=config.garbage_collection_threshold,
            limit=_NONE if self.heap.limit is None else self.heap.limit,
            reject_above=reject,
            reserve=reserve_bytes(config.expandable_segments_reserve, capacity),
            expandable=config.expandable_segments,
            expandable_private_pools=traits.expandable_private_pools,
            tie_break=structs.TIES[traits.tie_break],
            asserts_on_expandable=traits.asserts_on_expandable,
            refuses_hopeless_expandable=traits.refuses_hopeless_expandable,
        )

    def _start(self) -> Any:
        numbers = {
            address: number
            for number, address in enumerate(self.job.requests.older.address.tolist())
        }
        blocks = list(_in_order(self.heap))
        rows = (structs.StartBlock * len(blocks))()
        for row, block in zip(rows, blocks, strict=True):
            row.address, row.size, row.requested = block.address, block.size, block.requested_size
            row.tie, row.stream = block.tie, block.stream
            row.pool, row.small = self.pools[block.pool.id], block.pool.small
            row.mapped, row.linked = block.mapped, block.prev is not None
            row.state = 1 if block.allocated else 2 if block.event_count else 0
            row.number = numbers.get(block.address, -1) if row.state else -1
            segment = block.expandable_segment
            if segment is not None:
                row.expandable = 1
                row.segment, row.page, row.pages = segment.address, segment.page, segment.pages
        return rows

    def _recorded(self) -> structs.Recorded:
        trace = self.job.follow
        assert trace is not None
        self.followed = np.flatnonzero(trace.action <= OOM)
        keep = self.followed
        return structs.Recorded(
            len(keep),
            self._column(trace.action[keep], np.uint8, c_uint8),
            self._column(trace.address[keep], np.int64, c_int64),
            self._column(trace.size[keep], np.int64, c_int64),
            self._column(trace.stream[keep], np.int64, c_int64),
            bool((trace.action == FREE_REQUESTED).any()),
        )

    # Statistics both ways

    def _statistics_out(self, out: structs.Outcome) -> None:
        stats = self.heap.stats
        for theirs, name in zip(out.stats, Statistics.BY_POOL, strict=True):
            _copy_pools(getattr(stats, name), theirs)
        for name in Statistics.OVERSIZE:
            _copy(getattr(stats, name), getattr(out, name))
        for index, name in enumerate(Statistics.SCALARS):
            out.scalars[index] = getattr(stats, name)
        for pool, stat in stats.private_pools.items():
            place = self.pools[pool] * structs.POOL_KINDS
            _copy_pools(stat, [self.private[place + kind] for kind in range(structs.POOL_KINDS)])

    def _statistics_back(self, out: structs.Outcome) -> None:
        stats = self.heap.stats
        for theirs, name in zip(out.stats, Statistics.BY_POOL, strict=True):
            _copy_pools(theirs, getattr(stats, name))
        for name in Statistics.OVERSIZE:
            _copy(getattr(out, name), getattr(stats, name))
        for index, name in enumerate(Statistics.SCALARS):
            setattr(stats, name, out.scalars[index])
        for pool, index in self.pools.items():
            mine = [
                self.private[index * structs.POOL_KINDS + kind]
                for kind in range(structs.POOL_KINDS)
            ]
            if index and mine[0].allocated:
                _copy_pools(mine, stats.private_pools.setdefault(pool, PoolStat()))

    # Back from C

    def _failure(self, out: structs.Outcome) -> Failure | None:
        if out.ending not in (structs.OUT_OF_MEMORY, structs.REJECTED):
            return None
        requests, operation = self.job.requests, out.failed_operation
        return Failure(
            operation=operation,
            event=int(requests.event[operation]),
            requested=int(requests.size[operation]),
            tried=out.failed_tried,
            free=out.failed_free,
            reserved=out.failed_reserved,
            active=out.failed_active,
            rejected=out.ending == structs.REJECTED,
        )

    def _divergence(self, out: structs.Outcome) -> Divergence:
        trace = self.job.follow
        assert trace is not None
        event, expected = len(trace), "the end of the trace"
        if out.cursor < len(self.followed):
            event = int(self.followed[out.cursor])
            action = trace.actions[trace.action[event]]
            expected = describe(
                action, int(trace.address[event]), int(trace.size[event]), int(trace.stream[event])
            )
        actual = (
            describe(
                trace.actions[out.actual_action],
                out.actual_address,
                out.actual_size,
                out.actual_stream,
            ),
            f"cudaMalloc of {out.actual_size} bytes",
            f"mapping {out.actual_address:#x}, {out.actual_size} bytes",
        )[out.difference]
        return Divergence(event=event, expected=expected, actual=actual)

    def _timeline(self, operations: int) -> Timeline | None:
        if self.columns is None:
            return None
        reserved, active, allocated = list(self.columns[:, :operations])
        return Timeline(reserved=reserved, active=active, allocated=allocated)


def _in_order(heap: Heap) -> Iterator[Block]:
    """Every block, the unmapped ones included, segment by segment from its first block."""
    everywhere = [*heap.active.values()]
    for pool in heap.pools():
        everywhere += [entry[4] for entry in pool.free] + [entry[2] for entry in pool.unmapped]
    for head in sorted((b for b in everywhere if b.prev is None), key=lambda b: b.address):
        block: Block | None = head
        while block is not None:
            yield block
            block = block.next


def _copy(source: Any, target: Any) -> None:
    for metric in Stat.__slots__:
        setattr(target, metric, getattr(source, metric))


def _copy_pools(source: Any, target: Any) -> None:
    """Between a PoolStat and a row of three twins, whichever way round."""
    mine = [stat for _, stat in source.each()] if isinstance(source, PoolStat) else source
    theirs = [stat for _, stat in target.each()] if isinstance(target, PoolStat) else target
    for one, other in zip(mine, theirs, strict=True):
        _copy(one, other)
