"""Engines: one interface, and what goes in and comes out. An engine puts requests through an allocator and reports bytes.

Two exist: the simulator (``simulate``, with its inner loop in C where a compiler is there), and PyTorch's own allocator on a
virtual GPU (``virtual``). They give the same answers; tests hold them to it.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Protocol

from vramdoc.allocator.config import AllocatorConfig
from vramdoc.facts import Source
from vramdoc.replay.requests import Requests
from vramdoc.replay.start import StartState

if TYPE_CHECKING:
    import numpy as np
    import numpy.typing as npt

    from vramdoc.snapshot.model import Trace

UNKNOWN_CAPACITY = 1 << 44
"""Stands for a device of unknown size: 16 TiB, so nothing runs out of memory."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Job:
    """One replay: requests, from where they start, and under what."""

    requests: Requests
    start: StartState
    config: AllocatorConfig
    capacity: int | None
    """Total bytes of the device; None when nobody recorded it, and then nothing runs out of memory."""
    in_use: int = 0
    """Bytes held by contexts, libraries and other processes."""
    fraction: float | None = None
    """set_per_process_memory_fraction at the start."""
    follow: Trace | None = None
    """Compare every event with this trace, take segment addresses from it, and stop at the first difference."""
    timeline: bool = False
    """Keep the levels after every operation."""


@dataclass(frozen=True, slots=True, kw_only=True)
class AtPeak:
    """Levels in bytes when reserved memory first reached its peak."""

    operation: int
    """Operation after which it was reached; -1 for the start."""
    reserved: int
    active: int
    allocated: int
    requested: int
    returnable: int
    """What ``empty_cache`` would have returned then."""

    @property
    def external_fragmentation(self) -> int:
        """Inactive bytes that ``empty_cache`` could not have returned."""
        return self.reserved - self.active - self.returnable

    @property
    def internal_fragmentation(self) -> int:
        """Bytes of live blocks beyond what was asked for."""
        return self.active - self.requested


@dataclass(frozen=True, slots=True, kw_only=True)
class Failure:
    """The request that ran out of memory and ended the replay."""

    operation: int
    event: int
    """Trace event of the request."""
    requested: int
    tried: int
    """What CUDA was asked for."""
    free: int
    """Free at the driver then."""
    reserved: int
    active: int
    rejected: bool = False
    """By throw_on_cudamalloc_oom."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Divergence:
    """The first event that the allocator made otherwise than the recording."""

    event: int
    expected: str
    """The recorded event, as ``action address size stream``."""
    actual: str
    """What the replay did instead."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Timeline:
    """Bytes after each operation, one entry an operation."""

    reserved: npt.NDArray[np.int64]
    active: npt.NDArray[np.int64]
    allocated: npt.NDArray[np.int64]


@dataclass(frozen=True, slots=True, kw_only=True)
class Outcome:
    """What an engine saw."""

    stats: Mapping[str, int]
    """torch.cuda.memory_stats() at the end."""
    peak: AtPeak
    operations: int
    """How many were carried out."""
    failure: Failure | None = None
    avoided: int = 0
    """Recorded out-of-memory requests that were served here."""
    divergence: Divergence | None = None
    undefined: str = ""
    """Why the replay had to stop where the real allocator would corrupt itself, or fail an assertion of its own."""
    explicit: tuple[int, ...] = ()
    """FLUSH operations (of a job that follows) that must have been ``empty_cache``: the next request was in the cache."""
    timeline: Timeline | None = None
    notes: tuple[str, ...] = field(default=())


class Engine(Protocol):
    """Puts a job through an allocator."""

    source: Source
    """Which kind of figure comes out."""

    def run(self, job: Job) -> Outcome:
        """Carry out the job's operations in order, until the end, an out-of-memory error or a divergence."""
