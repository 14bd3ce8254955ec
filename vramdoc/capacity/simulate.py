"""Any number of sessions under any allocator config, through the exact simulator: no run, no device.

Sessions from the third on repeat the pattern of a SessionStream. It decides nothing; ``plan`` searches with it.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from vramdoc.allocator import AllocatorConfig, CachingAllocator, Device, OutOfMemory
from vramdoc.capacity.session_stream import (
    CALIBRATION_SESSIONS,
    Alloc,
    Name,
    Operation,
    SessionStream,
    Unit,
)

LAST = CALIBRATION_SESSIONS - 1
"""The session whose units are the pattern."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Simulated:
    """How it would go."""

    sessions: int
    fits: bool
    prefilled: int
    """Sessions that had read their prompt when it ended."""
    reserved_peak: int
    active_peak: int
    short_by: int
    """By how much the request that failed exceeds what the device had left; 0 when it fits."""


def simulate(
    stream: SessionStream, sessions: int, *, config: AllocatorConfig, capacity: int, in_use: int
) -> Simulated:
    """Put ``sessions`` (at least three) through the allocator on a device of ``capacity`` bytes, of which others use ``in_use``."""
    assert sessions >= CALIBRATION_SESSIONS
    allocator = CachingAllocator(config, Device(capacity, in_use=in_use), history=False)
    addresses: dict[Name, int] = {}
    prefilled = short_by = 0
    try:
        for unit, operations in _units(stream, sessions):
            _do(allocator, addresses, unit, operations, sessions)
            prefilled += unit[0] == "prefill"
    except OutOfMemory as error:
        figures = error.figures
        short_by = max(1, figures.tried - figures.free) if figures else 1
    stats = allocator.memory_stats()
    return Simulated(
        sessions=sessions, fits=short_by == 0, prefilled=prefilled, short_by=short_by,
        reserved_peak=stats["reserved_bytes.all.peak"], active_peak=stats["active_bytes.all.peak"],
    )  # fmt: skip


def _units(stream: SessionStream, sessions: int) -> Iterator[tuple[Unit, tuple[Operation, ...]]]:
    yield ("load", 0), stream.units["load", 0]
    for kind in ("prefill", "decode"):
        for session in range(sessions):
            yield (kind, session), stream.units[kind, min(session, LAST)]


def _do(
    allocator: CachingAllocator,
    addresses: dict[Name, int],
    unit: Unit,
    operations: tuple[Operation, ...],
    sessions: int,
) -> None:
    kind, session = unit
    made = 0
    for operation in operations:
        if isinstance(operation, Alloc):
            addresses[kind, session, made] = allocator.malloc(operation.size, operation.stream)
            made += 1
        else:
            address = addresses.pop(_resolve(operation.name, unit, sessions), None)
            if address:  # an empty request has the address 0
                allocator.free(address)


def _resolve(name: Name, unit: Unit, sessions: int) -> Name:
    """Which block the pattern means when ``unit`` plays it: sessions are counted from the one that plays.

    The decoding of the first two follows all prompts, so the calibration's last prompt stands for the last there is.
    """
    kind, session, place = name
    playing, now = unit
    if now > LAST:
        return kind, session + now - LAST if session else session, place
    if playing == "decode" and kind == "prefill" and session == LAST and now < LAST:
        return kind, sessions - 1, place
    return name
