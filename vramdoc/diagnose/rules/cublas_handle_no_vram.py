"""cublas-handle-no-vram: cuBLAS asked the driver for its handle and found no memory there."""

from __future__ import annotations

from collections.abc import Iterator

from vramdoc.diagnose.answers import (
    THE_ERROR,
    cite,
    confirmed,
    derived,
    quote,
    ruled_out,
    text_is_silent,
    undecided,
)
from vramdoc.diagnose.library_errors import LibraryError, earlier_error, library_error
from vramdoc.diagnose.rule import Rule
from vramdoc.diagnose.script_signs import IDS_BEYOND_VOCABULARY, source_line, violation
from vramdoc.diagnose.verdict import Confidence, Verdict
from vramdoc.evidence.case import Case
from vramdoc.facts import Fact, Source
from vramdoc.record.manifest import ExitKind, Observation
from vramdoc.units import GIB, MIB, format_bytes

ID = "cublas-handle-no-vram"
HANDLE_BUDGET = 256 * MIB
"""Handle (about 60 MB where it was measured), the first GEMM's module, and slack; used where the device's own figure is not known."""
AMPLE = GIB
"""With more than this free at the driver, memory cannot be the reason (failure-pattern catalogue 2.4)."""
_EXCLUDE = (
    "the log above this line (an earlier device-side assert would be the true cause)",
    "the device's free memory at the failure (nvidia-smi, torch.cuda.mem_get_info())",
)


def judge(case: Case) -> Verdict:
    """Confirm from the driver-free bytes a recording holds; from a text only the likelihood is known."""
    failed = _failed_creation(case)
    if failed is not None:
        return _from_recording(case, failed)
    error = library_error(case)
    if error is None:
        if text_is_silent(case):
            return undecided(ID, "The text holds no cuBLAS error.", [THE_ERROR])
        return ruled_out(ID, "No cuBLAS call failed.")
    if earlier := earlier_error(case):
        return ruled_out(
            ID, "An earlier error on the device explains it, not memory.", [quote(earlier)]
        )
    if (beyond := violation(case, IDS_BEYOND_VOCABULARY)) is not None:
        return ruled_out(
            ID,
            "The script uses ids beyond its embedding table, which explains it.",
            [source_line(beyond)],
            confidence=Confidence.MEDIUM,
        )
    if not (error.is_handle_creation or error.status == "ALLOC_FAILED"):
        return ruled_out(
            ID,
            f"{error.name} is no failure to get memory for a handle.",
            [quote(error.incident)],
            confidence=Confidence.MEDIUM,
        )
    return _from_text(case, error)


def _failed_creation(case: Case) -> Observation | None:
    """The last refused handle that the recorder saw, or an exit that names it."""
    if case.manifest is None:
        return None
    seen = [
        o
        for o in case.manifest.observations
        if o.kind == "cublas-handle" and not o.detail.get("ok", True)
    ]
    return seen[-1] if seen and case.manifest.exit.kind is not ExitKind.SUCCESS else None


def _from_recording(case: Case, failed: Observation) -> Verdict:
    manifest = case.manifest
    assert manifest is not None, "an observation comes from a manifest"
    device = manifest.device
    source = Source.MEASURED if device is not None and device.kind == "real" else Source.VIRTUAL_GPU
    free = failed.detail.get("driver_free_bytes")
    if not isinstance(free, int):
        return undecided(
            ID,
            "cublasCreate failed; how much the driver had free was not recorded.",
            ["driver-free bytes at the failure"],
        )
    needs = (
        device.cublas_handle_bytes
        if device is not None and device.cublas_handle_bytes
        else HANDLE_BUDGET
    )
    evidence = [
        derived("driver_free", free, "cudaMemGetInfo when the handle was asked for", source),
        derived(
            "handle_needs",
            needs,
            "the device catalogue, or a safe budget of 256 MiB",
            Source.ESTIMATED,
        ),
        *_pool_facts(case, source),
    ]
    if free > max(AMPLE, 4 * needs):
        return ruled_out(
            ID, f"The driver had {format_bytes(free)} free: memory is excluded.", evidence
        )
    return confirmed(
        ID,
        f"cublasCreate found {format_bytes(free)} free at the driver and needs about {format_bytes(needs)}. {_why(case, free, needs)}",
        evidence,
        explains=needs - free,
        notes=[
            "cuBLAS asks the driver, not PyTorch's pool: torch neither empties its cache nor retries when a handle cannot be made."
        ],
    )


def _pool_facts(case: Case, source: Source) -> Iterator[Fact]:
    held = case.fragmentation
    if held is not None:
        yield derived("reserved", held.reserved_bytes, "segments of the snapshot", source)
        yield derived("allocated", held.allocated_bytes, "segments of the snapshot", source)
        yield derived(
            "returnable",
            held.returnable_bytes,
            "wholly idle segments: empty_cache returns them",
            source,
        )


def _why(case: Case, free: int, needs: int) -> str:
    """Hoarding, a fragmented cache or a full device (catalogue 2.2)."""
    held = case.fragmentation
    if held is None:
        return "How much of PyTorch's pool was idle is not recorded."
    idle = held.reserved_bytes - held.allocated_bytes
    if free + held.returnable_bytes >= needs:
        return f"PyTorch's cache holds {format_bytes(held.returnable_bytes)} in wholly idle segments: make the handle earlier, or give the cache back once before it."
    if free + idle >= needs:
        return f"PyTorch's pool holds {format_bytes(idle)} idle, but in partly used segments, which it cannot return."
    return (
        f"PyTorch's pool holds only {format_bytes(idle)} idle: the device is full of live tensors."
    )


def _from_text(case: Case, error: LibraryError) -> Verdict:
    rows = (
        [o for o in case.crash.observations if o.kind == "gpu-row"]
        if case.crash is not None
        else []
    )
    room = [int(row.readings["total"].value) - int(row.readings["used"].value) for row in rows]
    if room and min(room) > AMPLE:
        return ruled_out(
            ID,
            f"The GPU table beside the error shows {format_bytes(min(room))} free.",
            [quote(error.incident)],
            confidence=Confidence.MEDIUM,
        )
    starved = case.crash is not None and case.crash.first("cuda-oom", "bare-oom") is not None
    first_use = (
        " It is the first use of the library on this thread and device."
        if error.is_handle_creation
        else ""
    )
    proof = (
        "An out-of-memory error stands in the same log."
        if starved
        else "These lines alone do not prove it: an earlier device-side assert (index out of range) looks the same."
    )
    return confirmed(
        ID,
        f"{error.name} failed. Most likely the device had no free memory left outside PyTorch's caching allocator, where handles come from.{first_use} {proof}",
        [quote(error.incident), *[cite(row.readings["used"], "gpu_used") for row in rows[:1]]],
        confidence=Confidence.MEDIUM if starved else Confidence.LOW,
        notes=[
            "First check the device's free memory at that moment (nvidia-smi): under 150 MiB confirms it, over 1 GiB excludes it.",
            "To exclude a device-side assert, look at the log above this line, or run once on the CPU or with CUDA_LAUNCH_BLOCKING=1.",
            *_second_handle(case),
        ],
    )


def _second_handle(case: Case) -> Iterator[str]:
    if case.crash is not None and "backward" in case.crash.signs:
        yield "The first backward() runs on autograd's own thread and makes a second handle there: warm it up together with the first."


RULE = Rule(
    id=ID,
    title="No driver memory left for a cuBLAS handle",
    meaning=(
        "cuBLAS keeps its handle in memory from the driver, outside PyTorch's pool, and makes one on each thread's first matrix product on a device. When PyTorch's cache (or anything else) holds all of the device, "
        "that fails, although the pool may be full of idle blocks. torch does not empty its cache and try again."
    ),
    how_decided=(
        "In a recording: driver-free bytes when the handle was asked for, against what a handle takes there (256 MiB where that is not known); wholly idle segments and idle bytes of the pool tell hoarding, a fragmented cache and a full device apart. "
        "From a text: cublasCreate with ALLOC_FAILED or NOT_INITIALIZED and no earlier error is most often this (15 of 43 public findings), but not certain: 10 were masked asserts, 10 library mismatches."
    ),
    not_to_confuse_with="cublas-masked-device-assert, cublas-library-mismatch. A failed workspace is an ordinary OutOfMemoryError: workspaces come from PyTorch's pool. Masks or mixed dtypes are no cause.",
    remedies=(
        "RX-WARMHANDLE",
        "RX-FRACTION",
        "RX-EMPTYCACHE",
        "RX-SETDEV",
        "RX-BATCH",
    ),
    references=(
        "aten/src/ATen/cuda/CublasHandlePool.cpp",
        "aten/src/ATen/cuda/detail/DeviceThreadHandles.h",
        "pytorch#128601",
    ),
    judge=judge,
)
