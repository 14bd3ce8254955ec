"""What PyTorch recorded, as immutable records. The trace is columns, so that a million events stay small.

It knows no file format (``reader``, ``schema``) and no allocator rule (``allocator``).
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, overload

if TYPE_CHECKING:
    import numpy as np
    import numpy.typing as npt

ACTIONS = (
    "alloc", "free_requested", "free_completed", "segment_alloc", "segment_free",
    "segment_map", "segment_unmap", "oom", "snapshot", "annotate",
)  # fmt: skip
"""Actions of torch 2.0 to 2.15 (torch/csrc/cuda/memory_snapshot.cpp); a trace keeps unknown ones behind these."""


@dataclass(frozen=True, slots=True)
class Frame:
    """One stack frame, innermost first in a stack."""

    filename: str
    line: int
    name: str


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class StackTable(Sequence[tuple[Frame, ...]]):
    """Distinct stacks by code, kept as indices into distinct frames and built on demand.

    A million events share a few thousand frames; as tuples their stacks would outweigh everything else.
    """

    frames: tuple[Frame, ...]
    indices: npt.NDArray[np.int32]
    """The frames of all stacks, one stack after the other, innermost frame first."""
    ends: npt.NDArray[np.int64]
    """Stack ``i`` is ``indices[ends[i]:ends[i + 1]]``; one entry more than there are stacks."""

    def __len__(self) -> int:
        return len(self.ends) - 1

    @overload
    def __getitem__(self, code: int) -> tuple[Frame, ...]: ...
    @overload
    def __getitem__(self, code: slice) -> list[tuple[Frame, ...]]: ...
    def __getitem__(self, code: int | slice) -> tuple[Frame, ...] | list[tuple[Frame, ...]]:
        if isinstance(code, slice):
            return [self[index] for index in range(*code.indices(len(self)))]
        if not 0 <= code < len(self):
            raise IndexError(code)
        return tuple(self.frames[i] for i in self.indices[self.ends[code] : self.ends[code + 1]])


@dataclass(frozen=True, slots=True, kw_only=True)
class BlockInfo:
    """A piece of a segment. ``requested_size`` of an inactive block is stale (allocator-spec 3.2)."""

    address: int
    size: int
    requested_size: int
    state: str
    """``active_allocated``, ``active_pending_free`` or ``inactive``; other spellings are mapped to these."""
    frames: tuple[Frame, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class SegmentInfo:
    """One cudaMalloc, or one maximal mapped run of an expandable segment."""

    device: int
    address: int
    total_size: int
    allocated_size: int
    active_size: int
    requested_size: int
    stream: int
    segment_type: str
    """``small`` or ``large``."""
    segment_pool_id: tuple[int, int]
    is_expandable: bool
    blocks: tuple[BlockInfo, ...]
    frames: tuple[Frame, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class TraceEvent:
    """One event; ``address`` is None for ``oom``, whose ``device_free`` is then set."""

    action: str
    address: int | None
    size: int
    stream: int
    time_us: int | None
    pool_id: tuple[int, int] | None
    device_free: int | None
    frames: tuple[Frame, ...]


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Trace:
    """The events of one device, oldest first. Every column has one entry an event. Traces are equal when they are the same.

    ``address`` holds ``device_free`` for an ``oom`` event. ``time_us`` is -1 where the release recorded no time,
    ``pool`` is -1 where it recorded no pool, ``stack`` is -1 where no stack was kept.
    """

    device: int
    actions: tuple[str, ...]
    """Names by code: ACTIONS first, then unknown ones."""
    action: npt.NDArray[np.uint8]
    address: npt.NDArray[np.int64]
    size: npt.NDArray[np.int64]
    stream: npt.NDArray[np.int64]
    time_us: npt.NDArray[np.int64]
    pool: npt.NDArray[np.int16]
    stack: npt.NDArray[np.int32]
    pools: tuple[tuple[int, int], ...]
    """Pool ids by the codes in ``pool``."""
    stacks: Sequence[tuple[Frame, ...]]
    """Distinct stacks by the codes in ``stack``: a StackTable, shared by the traces of a snapshot, from the reader."""

    def __len__(self) -> int:
        return len(self.action)

    def __getitem__(self, index: int) -> TraceEvent:
        action = self.actions[self.action[index]]
        address, time, pool, stack = (
            int(column[index]) for column in (self.address, self.time_us, self.pool, self.stack)
        )
        is_oom = action == "oom"
        return TraceEvent(
            action=action,
            address=None if is_oom else address,
            size=int(self.size[index]),
            stream=int(self.stream[index]),
            time_us=None if time < 0 else time,
            pool_id=None if pool < 0 else self.pools[pool],
            device_free=address if is_oom else None,
            frames=() if stack < 0 else self.stacks[stack],
        )

    def __iter__(self) -> Iterator[TraceEvent]:
        return (self[index] for index in range(len(self)))


@dataclass(frozen=True, slots=True, kw_only=True)
class Annotation:
    """One ``record_function`` range mark."""

    name: str
    stage: str
    device: int
    time_us: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Snapshot:
    """One ``torch.cuda.memory._snapshot()``."""

    segments: tuple[SegmentInfo, ...]
    traces: tuple[Trace, ...]
    """One a device, in device order; empty traces included."""
    allocator_settings: Mapping[str, Any]
    """As recorded; empty before torch 2.3."""
    annotations: tuple[Annotation, ...] = ()
    host_segments: tuple[SegmentInfo, ...] = ()
    """Pinned host memory (2.14+)."""
    problems: tuple[str, ...] = ()
    """Inconsistencies that were survived, in sentences: "blocks of segment 0x7f.. add up to 8704 of 52428800 bytes"."""
    unknown: Mapping[str, Any] = field(default_factory=dict)
    """Top-level keys nobody knows yet."""

    @property
    def alloc_conf(self) -> str:
        """The settings string in force, empty when default or not recorded."""
        return str(self.allocator_settings.get("PYTORCH_CUDA_ALLOC_CONF", "") or "")
