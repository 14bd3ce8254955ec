"""What follows from the figures of a failed request by addition and subtraction (failure-pattern catalogue 3.3). Pure, and judges nothing.

reserved     S = A + U                      of this process's pool
process      P, or the listed process that can hold S and is closest to it (a container hides the own pid)
non_pytorch  N = P - S                      context, handles, NCCL, graphs, other libraries
others       O = sum of the other listed processes
unexplained  X = T - F - (P + O, or S + O)  desktop, other containers, or N where P is unknown
short            R - F, or S + R - L where a memory limit binds
"""

from __future__ import annotations

from dataclasses import dataclass

from vramdoc.evidence.oom import OomAnatomy
from vramdoc.facts import Fact
from vramdoc.units import MIB

ROUNDING = 30 * MIB
"""Six printed figures of two decimals in GiB are each up to 5.1 MiB off; used when a source does not say its own rounding."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Balance:
    """One device at the moment of a failed request, in bytes. None where a figure is not known."""

    requested: int
    total: int | None
    free: int | None
    allocated: int | None
    unallocated: int | None
    reserved: int | None
    private_pools: int
    live: int | None
    """Allocated less the idle bytes of private pools, which torch counts as allocated."""
    allowed: int | None
    process: int | None
    process_is_matched: bool
    """The process was not called "this process" but is the listed one that fits."""
    non_pytorch: int | None
    others: int | None
    other_count: int
    outside: int | None
    """Everything on the device that is neither free nor in this pool: T - F - S."""
    unexplained: int | None
    rounding: int

    @property
    def short(self) -> int | None:
        """Bytes that the device lacked for the request."""
        return None if self.free is None else self.requested - self.free

    @property
    def over_limit(self) -> int | None:
        """Bytes by which the request passes the memory limit."""
        if self.allowed is None or self.reserved is None:
            return None
        return self.reserved + self.requested - self.allowed


def balance(oom: OomAnatomy) -> Balance | None:
    """Do the sums; None where not even the requested size is known."""
    requested = _value(oom.requested)
    if requested is None:
        return None
    total, free, allocated = _value(oom.total), _value(oom.free), _value(oom.allocated)
    reserved, unallocated = _value(oom.reserved), _value(oom.unallocated)
    if reserved is None and allocated is not None and unallocated is not None:
        reserved = allocated + unallocated
    if unallocated is None and allocated is not None and reserved is not None:
        unallocated = reserved - allocated
    rounding = _value(oom.extra.get("rounding"))
    rounding = ROUNDING if rounding is None else rounding
    process = _value(oom.process)
    listed = [value for fact in oom.other_processes if (value := _value(fact)) is not None]
    others = sum(listed) if listed or process is not None else None
    outside = None if total is None or free is None or reserved is None else total - free - reserved
    known = (0 if process is None or reserved is None else process - reserved) + (others or 0)
    return Balance(
        requested=requested,
        total=total,
        free=free,
        allocated=allocated,
        unallocated=unallocated,
        reserved=reserved,
        private_pools=_value(oom.private_pools) or 0,
        live=None if allocated is None else allocated - (_value(oom.private_pools) or 0),
        allowed=_value(oom.allowed),
        process=process,
        process_is_matched="hidden_process" in oom.extra,
        non_pytorch=None if process is None or reserved is None else process - reserved,
        others=others,
        other_count=len(listed),
        outside=outside,
        unexplained=None if outside is None else outside - known,
        rounding=rounding,
    )


def _value(fact: Fact | None) -> int | None:
    return fact.value if fact is not None and isinstance(fact.value, int) else None
