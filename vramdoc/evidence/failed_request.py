"""The failed request as the snapshot shows it: torch's numbers recomputed from the segments, and where the free bytes sat.

It knows no message (``anatomy`` reads those); ``merge_anatomy`` lets the snapshot override the message, which is rounded.
"""

from __future__ import annotations

from dataclasses import fields, replace
from typing import TYPE_CHECKING

from vramdoc.allocator.sizes import SMALL_SIZE, allocation_size
from vramdoc.evidence.measure import DEFAULT_POOL, fragmentation
from vramdoc.evidence.oom import OomAnatomy
from vramdoc.evidence.origin import device_of_interest, rows_of, trace_of
from vramdoc.evidence.pages import large_segment_size
from vramdoc.evidence.source import source_of
from vramdoc.facts import Fact, Source

if TYPE_CHECKING:
    from vramdoc.evidence.fragmentation import Fragmentation, GroupUse
    from vramdoc.record.manifest import Manifest
    from vramdoc.snapshot.model import Snapshot, TraceEvent

SEATS = ("inactive_usable", "inactive_other_stream", "inactive_other_class", "inactive_other_pool")
"""Keys in ``extra``; their values add up to the inactive bytes of the device."""
_SEGMENTS = "segments of the snapshot"
_EVENT = "oom event of the trace"


def anatomy_from_snapshot(
    snapshot: Snapshot, manifest: Manifest | None = None
) -> OomAnatomy | None:
    """The last out-of-memory event of the device of interest; None when the trace holds none.

    The layout is that of the failure only while nothing was allocated or freed after it; otherwise the segments tell of
    another moment and only the event's own numbers are given.
    """
    device = device_of_interest(snapshot)
    trace = trace_of(snapshot, device)
    failures = rows_of(trace, "oom")
    if not len(failures):
        return None
    event = trace[int(failures[-1])]
    source = source_of(manifest)
    anatomy = OomAnatomy(
        requested=_bytes(
            "requested", allocation_size(event.size, large_segment_size(snapshot)), source, _EVENT
        ),
        free=_bytes("free", event.device_free or 0, source, _EVENT),
        total=_total(manifest, source),
        expandable_on=_expandable(snapshot, device),
        device=device,
        extra={"rounded_request": _bytes("rounded_request", event.size, source, _EVENT)},
    )
    after = trace.action[int(failures[-1]) + 1 :]
    quiet = {trace.actions.index(action) for action in ("oom", "snapshot")}
    if not set(after.tolist()) <= quiet:
        return anatomy
    return _with_layout(anatomy, event, fragmentation(snapshot, device), source)


def merge_anatomy(message: OomAnatomy | None, snapshot: OomAnatomy | None) -> OomAnatomy | None:
    """Both accounts of one failure as one; where they overlap the snapshot wins, because a message is rounded."""
    if message is None or snapshot is None:
        return snapshot if message is None else message
    stronger = {
        part.name: value
        for part in fields(OomAnatomy)
        if (value := getattr(snapshot, part.name)) is not None and value not in ((), "", {})
    }
    stronger["extra"] = {**message.extra, **snapshot.extra}
    return replace(message, **stronger)


def _with_layout(
    anatomy: OomAnatomy, event: TraceEvent, held: Fragmentation, source: Source
) -> OomAnatomy:
    inactive = dict.fromkeys(SEATS, 0)
    largest = 0
    for group in held.groups:
        seat = _seat(group, event)
        inactive[seat] += group.inactive_bytes
        if seat == "inactive_usable":
            largest = group.largest_inactive_bytes
    private = held.private_pool_inactive_bytes
    # torch's "reserved but unallocated": free blocks outside private pools, and blocks that wait for a stream.
    unallocated = held.inactive_bytes - private + held.pending_bytes
    values = {
        "reserved": held.reserved_bytes,
        "allocated": held.reserved_bytes - unallocated,
        "unallocated": unallocated,
        "private_pools": private,
        "largest_hole": largest,
        "pending": held.pending_bytes,
        "returnable": held.returnable_bytes,
        "active": held.active_bytes,
        **inactive,
    }
    facts = {name: _bytes(name, value, source, _SEGMENTS) for name, value in values.items()}
    own = {part.name: facts.pop(part.name) for part in fields(OomAnatomy) if part.name in facts}
    return replace(anatomy, **own, extra={**anatomy.extra, **facts})  # type: ignore[arg-type] # Fact fields


def _seat(group: GroupUse, event: TraceEvent) -> str:
    """Where a group's free memory sits, seen from the failed request: the first thing that keeps it from being used."""
    if group.pool_id != (event.pool_id or DEFAULT_POOL):
        return "inactive_other_pool"
    if group.pool != ("small" if event.size <= SMALL_SIZE else "large"):
        return "inactive_other_class"
    return "inactive_usable" if group.stream == event.stream else "inactive_other_stream"


def _expandable(snapshot: Snapshot, device: int) -> bool:
    setting = snapshot.allocator_settings.get("expandable_segments")
    return setting is True or any(
        segment.is_expandable for segment in snapshot.segments if segment.device == device
    )


def _total(manifest: Manifest | None, source: Source) -> Fact | None:
    if manifest is None or manifest.device is None:
        return None
    return _bytes("total", manifest.device.total_bytes, source, "device properties")


def _bytes(name: str, value: int, source: Source, where: str) -> Fact:
    return Fact(name, value, "bytes", source, where)
