"""The simulator as an engine. This is the reference; ``native`` does the same in C for long traces."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

import numpy as np

from vramdoc.allocator import CachingAllocator, Device, OutOfMemory
from vramdoc.allocator.blocks import Block
from vramdoc.allocator.errors import InternalAssert, UndefinedBehaviour
from vramdoc.facts import Source
from vramdoc.replay.engines import (
    UNKNOWN_CAPACITY,
    AtPeak,
    Divergence,
    Failure,
    Job,
    Outcome,
    Timeline,
)
from vramdoc.replay.follow import Diverged, FollowingDevice, Recording
from vramdoc.replay.requests import Op

if TYPE_CHECKING:
    import numpy.typing as npt


def expandable_ranges(allocator: CachingAllocator) -> list[tuple[int, int, int, int]]:
    """Address, size, stream and page of the expandable segments; each has an unmapped tail."""
    found = {}
    for pool in allocator.heap.pools():
        for stream, _, block in pool.unmapped:
            segment = block.expandable_segment
            assert segment is not None
            found[segment.address] = (segment.address, segment.size, stream, segment.page)
    return list(found.values())


STOPS = {
    "undefined": "this release would call cudaFree inside a segment here, as blocks above max_split_size_mb were split before",
    "assertion": "this release fails an internal assertion here (expandable segments with max_split_size_mb or garbage "
    "collection, fixed in torch 2.5)",
}
"""Why a replay can go no further although the program would have."""


class Simulator:
    """The allocator in Python."""

    source = Source.REPLAYED

    def run(self, job: Job) -> Outcome:
        """See ``Engine``."""
        return _Run(job).outcome()


def prepare(job: Job) -> tuple[CachingAllocator, Mapping[int, Block]]:
    """The allocator in the state in which the trace begins, and its waiting blocks by address."""
    capacity = UNKNOWN_CAPACITY if job.capacity is None else job.capacity
    device = Device(capacity, in_use=job.in_use)
    recording: Any = None
    if job.follow is not None:
        recording = Recording(job.follow)
        device = FollowingDevice(capacity, recording, in_use=job.in_use)
    allocator = CachingAllocator(job.config, device, history=False)
    waiting = allocator.restore(job.start.segments)
    allocator.reset_accumulated_memory_stats()
    if isinstance(device, FollowingDevice):
        device.ranges += expandable_ranges(allocator)
        allocator.record_into(recording)
    if job.fraction is not None:
        allocator.set_per_process_memory_fraction(job.fraction)
    return allocator, waiting


class _Run:
    def __init__(self, job: Job) -> None:
        self.job = job
        self.allocator, waiting = prepare(job)
        self.address: list[int] = [*job.requests.older.address.tolist()]
        self.address += [0] * (job.requests.blocks - len(self.address))
        self.held = {
            number: waiting[address]
            for number, address in enumerate(self.address)
            if address in waiting
        }
        self.counters = self.allocator.statistics
        self.peak = self._levels(-1)
        self.avoided = 0
        self.failure: Failure | None = None
        self.undefined = ""
        self.divergence: Divergence | None = None
        self.explicit: list[int] = []
        self.series: list[tuple[int, int, int]] = []

    def outcome(self) -> Outcome:
        done = 0
        try:
            for done, row in enumerate(self._rows()):
                self._do(done, *row)
                self._after(done)
            done = len(self.job.requests)
        except OutOfMemory as error:
            self.failure = self._failed(done, error)
        except Diverged as error:
            self.divergence = error.divergence
        except UndefinedBehaviour:
            self.undefined = STOPS["undefined"]
        except InternalAssert:
            self.undefined = STOPS["assertion"]
        return Outcome(
            stats=self.allocator.memory_stats(),
            peak=self.peak,
            operations=done,
            failure=self.failure,
            avoided=self.avoided,
            divergence=self.divergence,
            undefined=self.undefined,
            explicit=tuple(self.explicit),
            timeline=self._timeline(),
        )

    def _rows(self) -> zip[tuple[int, int, int, int, int]]:
        r = self.job.requests
        return zip(
            r.op.tolist(),
            r.block.tolist(),
            r.size.tolist(),
            r.stream.tolist(),
            r.pool.tolist(),
            strict=True,
        )

    def _do(self, operation: int, op: int, block: int, size: int, stream: int, pool: int) -> None:
        allocator, requests = self.allocator, self.job.requests
        if op == Op.ALLOC:
            self.address[block] = allocator.malloc(size, stream, requests.pools[pool])
        elif op == Op.FREE:
            allocator.free(self.address[block])
        elif op == Op.HOLD:
            self.held[block] = allocator.hold(self.address[block])
        elif op == Op.COMPLETE:
            allocator.complete(self.held.pop(block))
        elif op == Op.EMPTY_CACHE:
            allocator.empty_cache()
        elif op == Op.FLUSH:
            self._flush(operation)
        else:
            self._failed_before(operation, size, stream, requests.pools[pool])

    def _flush(self, operation: int) -> None:
        """Whose doing was it? Had the next request been in the cache, the allocator would have returned nothing."""
        r, asking = self.job.requests, operation + 1
        if self.job.follow is None or asking == len(r):
            return
        if self.allocator.has_cached(
            int(r.size[asking]), int(r.stream[asking]), r.pools[r.pool[asking]]
        ):
            self.explicit.append(operation)
            self.allocator.empty_cache()

    def _failed_before(self, operation: int, size: int, stream: int, pool: tuple[int, int]) -> None:
        """The request that the recording could not serve. If the program went on, it went on without that memory."""
        try:
            address = self.allocator.malloc(size, stream, pool)
        except OutOfMemory as error:
            if operation + 1 == len(self.job.requests):
                self.failure = self._failed(operation, error)
            return
        self.avoided += 1
        if operation + 1 < len(self.job.requests):
            self._note_peak(operation)
            self.allocator.free(address)

    def _note_peak(self, operation: int) -> None:
        if self.counters.reserved_bytes.all.peak > self.peak.reserved:
            self.peak = self._levels(operation)

    def _after(self, operation: int) -> None:
        self._note_peak(operation)
        if self.job.timeline:
            c = self.counters
            self.series.append(
                (
                    c.reserved_bytes.all.current,
                    c.active_bytes.all.current,
                    c.allocated_bytes.all.current,
                )
            )

    def _levels(self, operation: int) -> AtPeak:
        c = self.counters
        return AtPeak(
            operation=operation,
            reserved=c.reserved_bytes.all.peak,
            active=c.active_bytes.all.current,
            allocated=c.allocated_bytes.all.current,
            requested=c.requested_bytes.all.current,
            returnable=self.allocator.returnable_bytes(),
        )

    def _failed(self, operation: int, error: OutOfMemory) -> Failure:
        c, r = self.counters, self.job.requests
        tried = error.figures.tried if error.figures else int(r.size[operation])
        return Failure(
            operation=operation,
            event=int(r.event[operation]),
            requested=int(r.size[operation]),
            tried=tried,
            free=self.allocator.device.free_bytes,
            reserved=c.reserved_bytes.all.current,
            active=c.active_bytes.all.current,
            rejected=error.rejected,
        )

    def _timeline(self) -> Timeline | None:
        if not self.job.timeline:
            return None
        columns: npt.NDArray[np.int64] = np.array(self.series, np.int64).reshape(-1, 3)
        return Timeline(reserved=columns[:, 0], active=columns[:, 1], allocated=columns[:, 2])
