"""The anatomy of a failed request: torch's numbers, each with its source, merged from message, trace and manifest.

Names as in the failure-pattern catalogue section 3: R requested, T total, F free, A allocated, U unallocated, S reserved,
G private pools, L allowed, P this process, Q other processes. It computes the derived quantities and judges none of them.
"""

from __future__ import annotations

from dataclasses import dataclass, field

from vramdoc.facts import Fact


@dataclass(frozen=True, slots=True, kw_only=True)
class OomAnatomy:
    """One failed request. Every figure is a Fact in bytes, or None where nobody said."""

    requested: Fact | None = None
    """allocation_size: what would have been asked from CUDA (torch's "Tried to allocate")."""
    total: Fact | None = None
    free: Fact | None = None
    """Driver-free bytes after the flush."""
    allocated: Fact | None = None
    """Live blocks plus free blocks of private pools (torch's "allocated by PyTorch")."""
    unallocated: Fact | None = None
    reserved: Fact | None = None
    private_pools: Fact | None = None
    allowed: Fact | None = None
    process: Fact | None = None
    """This process's use as NVML sees it."""
    other_processes: tuple[Fact, ...] = ()
    largest_hole: Fact | None = None
    """From a snapshot: the largest inactive block that the request's pool and stream could use."""
    expandable_on: bool | None = None
    device: int | None = None
    text: str = ""
    """The message, when there is one."""
    extra: dict[str, Fact] = field(default_factory=dict)
