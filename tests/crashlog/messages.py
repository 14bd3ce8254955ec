"""Out-of-memory messages in every wording torch has had, composed from numbers with torch's own ``format_size``."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass

KIB, MIB, GIB = 1 << 10, 1 << 20, 1 << 30
NO_ANSWER = (1 << 64) - 1

OLD_HINT = (
    " If reserved memory is >> allocated memory try setting max_split_size_mb to avoid fragmentation."
    "  See documentation for Memory Management and PYTORCH_CUDA_ALLOC_CONF"
)
HINT_21 = (
    " If reserved but unallocated memory is large try setting max_split_size_mb to avoid fragmentation."
    "  See documentation for Memory Management and PYTORCH_CUDA_ALLOC_CONF"
)
HINT_22 = (
    " If reserved but unallocated memory is large try setting PYTORCH_CUDA_ALLOC_CONF=expandable_segments:True"
    " to avoid fragmentation.  See documentation for Memory Management"
    "  (https://pytorch.org/docs/stable/notes/cuda.html#environment-variables)"
)
HINT_210 = HINT_22.replace("PYTORCH_CUDA_ALLOC_CONF", "PYTORCH_ALLOC_CONF")
HINT_211 = HINT_22.replace(
    "https://pytorch.org/docs/stable/notes/cuda.html#environment-variables",
    "https://docs.pytorch.org/docs/stable/notes/cuda.html#optimizing-memory-usage-with-pytorch-cuda-alloc-conf",
)


def format_size(size: int) -> str:
    """c10/cuda/CUDACachingAllocator.cpp: two decimals, the step to the next unit above 1024."""
    if size <= 1024:
        return f"{size} bytes"
    if size <= MIB:
        return f"{size / KIB:.2f} KiB"
    if size <= GIB:
        return f"{size / MIB:.2f} MiB"
    return f"{size / GIB:.2f} GiB"


@dataclass(frozen=True)
class Numbers:
    """What one message tells."""

    requested: int = 512 * MIB
    total: int = 24 * GIB
    free: int = 100 * MIB
    allocated: int = 20 * GIB
    unallocated: int = 300 * MIB
    private_pools: int | None = None
    allowed: int | None = None
    process: int | None = None
    others: tuple[tuple[int, int], ...] = ()
    device: int = 0


def parenthesised(
    n: Numbers, *, hint: str = OLD_HINT, total_word: str = "reserved in total by PyTorch"
) -> str:
    """torch 1.4 to 2.0."""
    allowed = f"{format_size(n.allowed)} allowed; " if n.allowed is not None else ""
    return (
        f"CUDA out of memory. Tried to allocate {format_size(n.requested)} (GPU {n.device}; {format_size(n.total)} total capacity; "
        f"{format_size(n.allocated)} already allocated; {format_size(n.free)} free; {allowed}"
        f"{format_size(n.allocated + n.unallocated)} {total_word}){hint}"
    )


def cached(n: Numbers) -> str:
    """torch 1.0 to 1.3: what is cached excludes what is allocated."""
    return (
        f"CUDA out of memory. Tried to allocate {format_size(n.requested)} (GPU {n.device}; {format_size(n.total)} total capacity; "
        f"{format_size(n.allocated)} already allocated; {format_size(n.free)} free; {format_size(n.unallocated)} cached)"
    )


def sentences(
    n: Numbers,
    *,
    hint: str = HINT_22,
    capacity: str = "capacity",
    backend: str = "CUDA",
    raw_device: bool = False,
) -> str:
    """torch 2.1 and later."""
    device = chr(n.device) if raw_device else str(n.device)
    processes = "".join(
        f"Process {pid} has {format_size(size)} memory in use. " for pid, size in n.others
    )
    if n.process is not None:
        processes += f"Including non-PyTorch memory, this process has {format_size(n.process)} memory in use. "
    allowed = f"{format_size(n.allowed)} allowed; " if n.allowed is not None else ""
    pools = (
        f"with {format_size(n.private_pools)} allocated in private pools (e.g., {backend} Graphs), "
        if n.private_pools is not None
        else ""
    )
    return (
        f"{backend} out of memory. Tried to allocate {format_size(n.requested)}. GPU {device} has a total {capacity} of "
        f"{format_size(n.total)} of which {format_size(n.free)} is free. {processes}{allowed}Of the allocated memory "
        f"{format_size(n.allocated)} is allocated by PyTorch, {pools}and {format_size(n.unallocated)} is reserved by PyTorch but unallocated.{hint}"
    )


def async_backend(n: Numbers) -> str:
    """c10/cuda/CUDAMallocAsyncAllocator.cpp."""
    limit = NO_ANSWER if n.allowed is None else n.allowed
    return (
        f"Allocation on device {n.device} would exceed allowed memory. (out of memory)\n"
        f"Currently allocated     : {format_size(n.allocated)}\nRequested               : {format_size(n.requested)}\n"
        f"Device limit            : {format_size(n.total)}\nFree (according to CUDA): {format_size(n.free)}\n"
        f"PyTorch limit (set by user-supplied memory fraction)\n                        : {format_size(limit)}"
    )


WORDINGS: Mapping[str, Callable[[Numbers], str]] = {
    "1.0..1.3": cached,
    "1.4..1.9": lambda n: parenthesised(n, hint=""),
    "1.10..2.0": parenthesised,
    "2.1": lambda n: sentences(n, hint=HINT_21, capacity="capacty"),
    "2.2": sentences,
    "2.3 with a raw device byte": lambda n: sentences(n, raw_device=True),
    "2.10": lambda n: sentences(n, hint=HINT_210),
    "2.11": lambda n: sentences(n, hint=HINT_211),
    "2.14 expandable": lambda n: sentences(n, hint=""),
    "HIP": lambda n: sentences(n, backend="HIP", hint=HINT_22.replace("CUDA_ALLOC", "HIP_ALLOC")),
    "XPU": lambda n: sentences(
        n, backend="XPU", hint=" Please use `empty_cache` to release all unoccupied cached memory."
    ),
    "async": async_backend,
}
