"""Fragmentation under each of its published definitions, by name. Measured from a snapshot's segments, never judged."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True, kw_only=True)
class GroupUse:
    """Bytes of one (pool, size class, stream) group: free memory of one group cannot serve another."""

    pool_id: tuple[int, int]
    pool: str
    """``"small"`` or ``"large"``."""
    stream: int
    reserved_bytes: int
    active_bytes: int
    inactive_bytes: int
    returnable_bytes: int
    """Wholly inactive segments, or wholly free pages of expandable ones, that ``empty_cache`` would return."""
    largest_inactive_bytes: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Fragmentation:
    """All definitions, in bytes; ratios are made where they are shown."""

    device: int
    reserved_bytes: int
    active_bytes: int
    allocated_bytes: int
    requested_bytes: int
    pending_bytes: int
    """Blocks freed by the program that wait for a stream's event."""
    internal_bytes: int
    """allocated - requested of live blocks."""
    inactive_bytes: int
    returnable_bytes: int
    external_bytes: int
    """inactive - returnable, outside private pools: what ``empty_cache`` cannot return."""
    private_pool_inactive_bytes: int
    largest_inactive_bytes: int
    """The largest request servable without a new segment."""
    stranded_bytes: int | None
    """Inactive bytes that no request seen in the trace could use; None without a trace."""
    groups: tuple[GroupUse, ...]
