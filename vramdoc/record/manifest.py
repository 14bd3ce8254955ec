"""Manifest: everything about a run that is not in the snapshot, as immutable records.

It knows no file (``manifest_json`` and ``recording`` do) and judges nothing.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from enum import Enum
from typing import Any

MANIFEST_SCHEMA = 1


class ExitKind(str, Enum):
    """How the recorded program ended."""

    SUCCESS = "success"
    OUT_OF_MEMORY = "oom"
    CUBLAS = "cublas"
    RESIZE = "resize"
    EXCEPTION = "exception"
    SIGNAL = "signal"
    HOST_OOM = "host-oom"
    INTERRUPTED = "interrupted"
    RUNNING = "running"
    """The manifest was written while the program ran, and nothing came after it."""

    def __str__(self) -> str:
        return self.value


@dataclass(frozen=True, slots=True, kw_only=True)
class Exit:
    """The end of the program; ``traceback`` is the program's own text, kept whole."""

    kind: ExitKind
    code: int | None = None
    signal: int | None = None
    exception_type: str | None = None
    message: str | None = None
    traceback: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class DeviceInfo:
    """The device that the program saw. Sizes in bytes, as ``cudaMemGetInfo`` and the properties report them."""

    kind: str
    """``"virtual"`` or ``"real"``."""
    name: str
    """As CUDA names it, for example ``"NVIDIA GeForce RTX 4090"``."""
    key: str
    """What the person wrote after ``--gpu``: ``"rtx4090"``, ``"24GiB"``, ``"cuda:0"``."""
    index: int = 0
    total_bytes: int
    compute_capability: str
    """``"8.9"``."""
    multiprocessors: int
    context_bytes: int | None = None
    """What the CUDA context takes: an assumption of the catalogue on a virtual device, measured on a real one."""
    cublas_handle_bytes: int | None = None
    foreign_bytes: int | None = None
    """Bytes held by other processes, as seen (real) or asked for (virtual)."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Phase:
    """One named stretch of the run. Levels are torch's own statistics at its end; peaks are over the phase."""

    name: str
    """``"load"``, ``"prefill"``, ``"decode"``, ``"step"`` or a user's mark."""
    started_us: int
    """Microseconds since the epoch, the clock of the snapshot's trace events."""
    ended_us: int | None = None
    allocated_bytes: int | None = None
    active_bytes: int | None = None
    reserved_bytes: int | None = None
    active_peak_bytes: int | None = None
    reserved_peak_bytes: int | None = None
    driver_free_bytes: int | None = None
    detail: Mapping[str, int | float | str] = field(default_factory=dict)
    """Further numbers that the workload knows: ``{"session": 3, "context": 512, "kv_bytes": 67108864}``."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Observation:
    """Something a guard saw inside the process: a cuBLAS handle created, a resize refused, a slice past a cache's end."""

    kind: str
    """``"cublas-handle"``, ``"resize"``, ``"cast"``, ``"cache-overflow"``."""
    time_us: int
    detail: Mapping[str, Any]
    """For ``cublas-handle``: device, thread, driver_free_bytes, ok. For ``resize``: operation, tensor, origin
    (``{"kind": "file", "path": ...}``), wanted_bytes, owned_bytes, file, line. Always plain JSON values."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Manifest:
    """Everything about a run that is not in the snapshot. Plain JSON on disk; unknown keys survive in ``extra``."""

    schema_version: int = MANIFEST_SCHEMA
    created: str
    """ISO 8601, UTC."""
    tool_version: str
    versions: Mapping[str, str]
    """``torch``, ``python``, ``cuda`` (as built), ``driver``, ``transformers`` ...: only what is there."""
    platform: Mapping[str, str]
    """``system``, ``machine``, ``release``; never a host or user name."""
    alloc_conf: str
    """The allocator config string in force, empty for the default."""
    environment: Mapping[str, str] = field(default_factory=dict)
    """Allow-listed variables only (allocator, CUDA and cuBLAS settings)."""
    device: DeviceInfo | None = None
    workload: Mapping[str, Any] = field(default_factory=dict)
    """``name``, ``line`` (the one line that reproduces it) and the parameters; see ``workload``."""
    target: Mapping[str, str] = field(default_factory=dict)
    """``kind`` and ``name`` of what was run."""
    exit: Exit
    phases: Sequence[Phase] = ()
    observations: Sequence[Observation] = ()
    statistics: Mapping[str, int] = field(default_factory=dict)
    """torch.cuda.memory_stats() at the end, under its own keys."""
    notes: Sequence[str] = ()
    """What differs from a real run, in sentences: ``"cuDNN is off on the virtual GPU"``."""
    rank: int | None = None
    duration_s: float | None = None
    extra: Mapping[str, Any] = field(default_factory=dict)
