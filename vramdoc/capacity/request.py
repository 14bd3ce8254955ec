"""CapacityRequest: what is asked of ``vramdoc capacity``, refused here if it cannot be answered. Plain data."""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from vramdoc.capacity.session_stream import CALIBRATION_SESSIONS
from vramdoc.checkpoint import Checkpoint, DecoderShape, OtherShape, infer_shape
from vramdoc.checkpoint.config import number, text_config
from vramdoc.checkpoint.kv import KvLayout
from vramdoc.checkpoint.kv_config import kv_layout
from vramdoc.errors import UsageError
from vramdoc.record.launch import run_workload
from vramdoc.record.recording import Recording
from vramdoc.workload.spec import WorkloadSpec

Run = Callable[[WorkloadSpec, str], Recording]
"""(what to run, allocator config) -> the recording it left, on the device that the request is about."""

ALTERNATIVE_CONFIGS = ("expandable_segments:True", "max_split_size_mb:64")
"""Tried where a cell does not fit: both keep caches from being cut out of freed activations."""
ALTERNATIVE_CACHES = ("fp8", "int4", "offloaded")
"""Tried where no config makes a cell fit: strategies that hold fewer bytes on the device, the mildest first. (``int8`` holds a
sixteenth more than ``fp8``, and helps where that does.)"""
MOST_SESSIONS = 128
"""How far a border is searched beyond what was asked for: both of its sides are run, and more takes minutes."""
PINNED_ROUNDING = 2
"""PyTorch's allocator of pinned memory rounds a request up to a power of two (``CachingHostAllocatorImpl::allocate``, 2.14)."""


@dataclass(frozen=True, slots=True, kw_only=True)
class CapacityRequest:
    """A grid of contexts and concurrent sessions, for one model on one device under one config and strategy."""

    target: str
    contexts: tuple[int, ...] = (2048, 8192)
    sessions: tuple[int, ...] = (1, 4, 16)
    alloc_conf: str = ""
    cache: str = "dynamic"
    dtype: str = ""
    batch: int = 1
    seed: int = 0
    foreign_bytes: int = 0
    """Of a virtual device: what other processes hold."""
    alternatives: bool = True
    """Whether to look for a config or strategy that makes a cell fit which does not."""

    def line(self) -> str:
        """What every cell runs, in one line; its context and sessions are the cell's own."""
        dtype = f" --dtype {self.dtype}" if self.dtype else ""
        foreign = f" --foreign {self.foreign_bytes}B" if self.foreign_bytes else ""
        return f"--workload fill --batch {self.batch} --cache {self.cache} --seed {self.seed}{dtype}{foreign}"

    def spec(self, context: int, sessions: int, cache: str = "") -> WorkloadSpec:
        """The workload of one cell."""
        return WorkloadSpec(
            target=self.target, name="fill", context=context, sessions=sessions, new_tokens=1, batch=self.batch,
            cache=cache or self.cache, dtype=self.dtype, seed=self.seed,
        )  # fmt: skip


def check_request(
    request: CapacityRequest, checkpoint: Checkpoint, host_bytes: int | None = None
) -> KvLayout:
    """The model's KV layout, if the request can be answered.

    Raises:
        UsageError: a size that is not positive, a context beyond the model's own limit, or offloaded caches that the
            host's ``host_bytes`` cannot hold.
        UnreadableInput: a model that has no KV cache, or one that is not known.
    """
    for name, sizes in (
        ("context", request.contexts),
        ("sessions", request.sessions),
        ("batch", (request.batch,)),
    ):
        if not sizes or min(sizes) < 1:
            raise UsageError(
                f"{name} must be positive", "write for example --context 2k,8k --sessions 1,4,16"
            )
    if min(request.contexts) < 2:
        raise UsageError("a context needs at least two tokens: a prompt and an answer")
    shape = infer_shape(checkpoint)
    if isinstance(shape, OtherShape):
        raise UsageError(
            f"capacity needs a language model; this is of the kind {shape.kind}: {shape.reason}"
        )
    if not isinstance(shape, DecoderShape):
        raise UsageError(
            "an encoder keeps no KV cache", "measure it with: vramdoc diagnose --workload encode"
        )
    limit = number(text_config(checkpoint.config or {}), "positions") or shape.max_positions
    if limit is not None and max(request.contexts) > limit:
        raise UsageError(
            f"context {max(request.contexts):,} is beyond the model's own limit of {limit:,} tokens",
            "ask for a smaller --context",
        )
    layout = kv_layout(checkpoint.config, shape)[0]
    largest = max(request.contexts)
    if most_sessions(request, layout, largest, request.cache, host_bytes) < CALIBRATION_SESSIONS:
        raise UsageError(
            f"the host's memory cannot hold the offloaded caches of {CALIBRATION_SESSIONS} sessions of {largest:,} tokens, "
            "which is what is run first",
            "ask for a smaller --context",
        )
    return layout


def most_sessions(
    request: CapacityRequest, layout: KvLayout, context: int, cache: str, host_bytes: int | None
) -> int:
    """How many sessions of ``context`` tokens may be run at all: offloaded caches fill host memory, and must not exhaust it.

    ``host_bytes`` is what the host has available, None where that is not known.
    """
    most = max(MOST_SESSIONS, *request.sessions)
    if cache != "offloaded" or host_bytes is None:
        return most
    a_session = PINNED_ROUNDING * layout.bytes_at(context, batch=request.batch)
    return min(most, host_bytes // max(1, a_session))


def available_host_bytes(meminfo: Path = Path("/proc/meminfo")) -> int | None:
    """What Linux says that programs may still take; None elsewhere."""
    try:
        text = meminfo.read_text()
    except OSError:
        return None
    found = re.search(r"^MemAvailable:\s+(\d+) kB", text, re.MULTILINE)
    return int(found[1]) << 10 if found else None


def runner(
    gpu: str, root: Path, *, foreign_bytes: int = 0, progress: Callable[[str], None] | None = None
) -> Run:
    """Run cells on ``gpu``, keeping recordings under ``root``. Stacks are left out: only sizes are needed."""

    def run(spec: WorkloadSpec, alloc_conf: str) -> Recording:
        if progress is not None:
            progress(
                f"{spec.sessions} x {spec.context} tokens, {spec.cache}, {alloc_conf or 'default allocator config'}"
            )
        return run_workload(
            spec,
            gpu=gpu,
            alloc_conf=alloc_conf,
            root=root,
            foreign_bytes=foreign_bytes,
            stacks="none",
        )

    return run
