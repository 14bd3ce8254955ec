"""What the allocator raises: running out of memory as PyTorch reports it, and uses that PyTorch itself does not survive."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from vramdoc.allocator.releases import Hint, Rules
from vramdoc.errors import UsageError, VramdocError


@dataclass(frozen=True, slots=True, kw_only=True)
class OomFigures:
    """The numbers in an out-of-memory message, in bytes."""

    requested: int
    """What the program asked for."""
    tried: int
    """"Tried to allocate": allocation_size of the rounded request."""
    total: int
    free: int
    """Free at the driver, after every cached block that could be returned was."""
    allocated: int
    """"allocated by PyTorch": live blocks and the free blocks of private pools."""
    private_pools: int
    """Free blocks of private pools, in spite of what the text says."""
    unallocated: int
    """"reserved by PyTorch but unallocated"."""
    allowed: int | None
    """The memory limit, when there is one."""

    @property
    def reserved(self) -> int:
        """Bytes obtained from CUDA."""
        return self.allocated + self.unallocated


def _figure(name: str) -> Any:
    def read(error: OutOfMemory) -> int | None:
        return None if error.figures is None else getattr(error.figures, name)

    return property(read, doc=f"``figures.{name}``, or None where the message prints no figures.")


class OutOfMemory(Exception):
    """torch.OutOfMemoryError with PyTorch's text and, in ``figures``, its numbers; each is an attribute here too.

    ``figures`` is None for the two texts that print none: the request beyond 1 EB and the rejection by policy.
    """

    def __init__(
        self, message: str, figures: OomFigures | None = None, *, rejected: bool = False
    ) -> None:
        super().__init__(message)
        self.message = message
        self.figures = figures
        self.rejected = rejected
        """throw_on_cudamalloc_oom refused the request; nothing was flushed and nothing counted."""

    requested = _figure("requested")
    tried = _figure("tried")
    total = _figure("total")
    free = _figure("free")
    allocated = _figure("allocated")
    private_pools = _figure("private_pools")
    unallocated = _figure("unallocated")
    reserved = _figure("reserved")
    allowed = _figure("allowed")


class UndefinedBehaviour(VramdocError):
    """The program would make the real allocator corrupt itself, so there is no result to report."""


class AllocatorError(VramdocError):
    """An error other than running out of memory; it reaches Python as a RuntimeError."""


class InternalAssert(AllocatorError):
    """The release fails an internal assertion of its own."""


class UnknownAddress(UsageError):
    """An address that the allocator does not hold."""


def internal_assert(condition: str, hint: str, *, line: str = "") -> InternalAssert:
    """The error of a failed TORCH_INTERNAL_ASSERT in CUDACachingAllocator.cpp; ``line`` is quoted where it is known."""
    where = f' at "../c10/cuda/CUDACachingAllocator.cpp":{line}' if line else ""
    return InternalAssert(
        f"{condition} INTERNAL ASSERT FAILED{where}, please report a bug to PyTorch. ", hint
    )


def format_size(size: int) -> str:
    """PyTorch's format_size: the step to the next unit comes above 1024, and GiB is the largest."""
    for limit, unit in ((1 << 10, ""), (1 << 20, "KiB"), (1 << 30, "MiB")):
        if size <= limit:
            return f"{size / (limit >> 10):.2f} {unit}" if unit else f"{size} bytes"
    return f"{size / (1 << 30):.2f} GiB"


def rejection(requested: int) -> OutOfMemory:
    """The text of a request refused by throw_on_cudamalloc_oom (torch 2.12+)."""
    return OutOfMemory(
        "CUDA out of memory. Allocation was preemptively rejected because it would exceed "
        f"per_process_memory_fraction limit. Requested size: {format_size(requested)}",
        rejected=True,
    )


def out_of_memory(
    figures: OomFigures, rules: Rules, *, device: int, expandable: bool
) -> OutOfMemory:
    """The error of a request that nothing could serve, worded as by ``rules.release``.

    The sentences about processes are left out: they come from NVML, not from the allocator.
    """
    allowed = ""
    if figures.allowed is not None and rules.message_shows_limit:
        allowed = f"{format_size(figures.allowed)} allowed; "
    private = ""
    if figures.private_pools:
        private = f"with {format_size(figures.private_pools)} allocated in private pools (e.g., CUDA Graphs), "
    message = (
        f"CUDA out of memory. Tried to allocate {format_size(figures.tried)}. GPU {device} has a total capacity of "
        f"{format_size(figures.total)} of which {format_size(figures.free)} is free. {allowed}Of the allocated memory "
        f"{format_size(figures.allocated)} is allocated by PyTorch, {private}and {format_size(figures.unallocated)} is "
        "reserved by PyTorch but unallocated."
    )
    return OutOfMemory(message + _hint(rules, expandable=expandable), figures)


def _hint(rules: Rules, *, expandable: bool) -> str:
    if not expandable or rules.hint is Hint.ALWAYS:
        return (
            f" If reserved but unallocated memory is large try setting {rules.hint_variable}=expandable_segments:True to "
            f"avoid fragmentation.  See documentation for Memory Management  ({rules.hint_url})"
        )
    if rules.hint is Hint.ADDRESS_SPACE:
        return (
            " expandable_segments is enabled. If instead the process is running out of virtual address space (VSZ), "
            "expandable segments may be over-reserving VA (each segment reserves ~9/8 of device memory, times the number "
            "of streams); reduce it via PYTORCH_CUDA_ALLOC_CONF expandable_segments_reserve / "
            "expandable_segments_reserve_by_class."
        )
    return ""
