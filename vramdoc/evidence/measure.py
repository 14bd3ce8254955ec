"""Usage and fragmentation of one device, measured from a snapshot and, where there is a recording, torch's own statistics.

It counts under every published definition and prefers none (allocator-spec 7.3).
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

import numpy as np

from vramdoc.allocator.sizes import MIN_BLOCK, SMALL_SIZE
from vramdoc.evidence.fragmentation import Fragmentation, GroupUse
from vramdoc.evidence.origin import rows_of, trace_of
from vramdoc.evidence.pages import page_bytes, whole_pages
from vramdoc.evidence.source import source_of
from vramdoc.evidence.timeline import LEVELS, timeline
from vramdoc.evidence.usage import Levels, Usage

if TYPE_CHECKING:
    from vramdoc.evidence.timeline import Timeline
    from vramdoc.record.manifest import Manifest
    from vramdoc.snapshot.model import SegmentInfo, Snapshot

DEFAULT_POOL = (0, 0)
STATISTICS = {level: f"{level}_bytes.all" for level in LEVELS}
"""torch.cuda.memory_stats() keys of the levels; ``.current`` and ``.peak`` follow."""


def usage(snapshot: Snapshot, device: int, manifest: Manifest | None = None) -> Usage:
    """The four levels at the end and at their peaks.

    Peaks are torch's own counters where the recording has them, else those of the trace.
    """
    return usage_of(timeline(snapshot, device), snapshot, manifest)


def usage_of(line: Timeline, snapshot: Snapshot, manifest: Manifest | None = None) -> Usage:
    """``usage`` from a timeline that the caller has already."""
    trace = trace_of(snapshot, line.device)
    peaks = {level: line.peak(level)[0] for level in LEVELS}
    before = line.at(0)
    is_whole = before.reserved == 0 and before.active == 0
    statistics = {} if manifest is None else manifest.statistics
    counted = {level: _counted_peak(level, manifest) for level in LEVELS}
    for level, value in counted.items():
        peaks[level] = max(peaks[level], value)
    calls = {
        "device_alloc_calls": ("num_device_alloc", ("segment_alloc", "segment_map")),
        "device_free_calls": ("num_device_free", ("segment_free", "segment_unmap")),
    }
    return Usage(
        device=line.device,
        end=line.at(-1),
        peak=Levels(**peaks),
        **{
            name: statistics.get(key, len(rows_of(trace, *actions)) if is_whole else None)
            for name, (key, actions) in calls.items()
        },
        source=source_of(manifest),
        complete=is_whole or any(counted.values()),
        caveat=_caveat(line, before, has_counters=any(counted.values())),
    )


def _counted_peak(level: str, manifest: Manifest | None) -> int:
    """The peak by torch's counters, over the run and over each phase; 0 where nobody counted."""
    if manifest is None:
        return 0
    counter = int(manifest.statistics.get(f"{STATISTICS[level]}.peak", 0))
    phases = (getattr(phase, f"{level}_peak_bytes", None) or 0 for phase in manifest.phases)
    return max(counter, *phases, 0)


def _caveat(line: Timeline, before: Levels, *, has_counters: bool) -> str:
    if line.peak("active")[0] > line.peak("reserved")[0]:
        return "the trace contradicts itself: more memory is active than was ever reserved, so its peaks cannot be trusted"
    if has_counters:
        return ""
    if len(line) == 1:
        return "there are no trace events: the levels are those of the moment of the snapshot"
    if before.reserved or before.active:
        return (
            f"the trace began late (events: {len(line) - 1:,}): earlier peaks may have been higher"
        )
    return ""


def fragmentation(snapshot: Snapshot, device: int) -> Fragmentation:
    """Every definition of fragmentation at the moment of the snapshot."""
    groups: dict[tuple[tuple[int, int], str, int], _Group] = {}
    for segment in snapshot.segments:
        if segment.device == device:
            key = (segment.segment_pool_id, segment.segment_type, segment.stream)
            groups.setdefault(key, _Group(*key)).add(segment, page_bytes(snapshot, segment))
    smallest = _smallest_requests(snapshot, device)
    ordered = [groups[key] for key in sorted(groups)]
    default = [group for group in ordered if group.pool_id == DEFAULT_POOL]
    inactive = sum(sum(group.holes) for group in ordered)
    private = sum(sum(group.holes) for group in ordered if group.pool_id != DEFAULT_POOL)
    returnable = sum(group.returnable for group in ordered)
    allocated = sum(group.allocated for group in ordered)
    requested = sum(group.requested for group in ordered)
    pending = sum(group.pending for group in ordered)
    return Fragmentation(
        device=device,
        reserved_bytes=sum(group.reserved for group in ordered),
        active_bytes=allocated + pending,
        allocated_bytes=allocated,
        requested_bytes=requested,
        pending_bytes=pending,
        internal_bytes=allocated - requested,
        inactive_bytes=inactive,
        returnable_bytes=returnable,
        external_bytes=inactive - private - returnable,
        private_pool_inactive_bytes=private,
        largest_inactive_bytes=max((group.largest for group in default), default=0),
        stranded_bytes=None if smallest is None else sum(g.stranded(smallest) for g in ordered),
        groups=tuple(group.use() for group in ordered),
    )


@dataclass(slots=True)
class _Group:
    """One (pool, size class, stream): the unit within which free memory can be used."""

    pool_id: tuple[int, int]
    pool: str
    stream: int
    reserved: int = 0
    allocated: int = 0
    requested: int = 0
    pending: int = 0
    returnable: int = 0
    holes: list[int] = field(default_factory=list)

    def add(self, segment: SegmentInfo, page: int) -> None:
        holes = [block for block in segment.blocks if block.state == "inactive"]
        self.reserved += segment.total_size
        self.holes.extend(block.size for block in holes)
        for block in segment.blocks:
            if block.state == "active_pending_free":
                self.pending += block.size
            elif block.state != "inactive":
                self.allocated += block.size
                self.requested += block.requested_size
        if self.pool_id != DEFAULT_POOL:
            return  # A graph or MemPool may still own it; a snapshot does not tell (allocator-spec 7.3).
        if segment.is_expandable:
            self.returnable += sum(whole_pages(segment, block, page) for block in holes)
        elif len(holes) == len(segment.blocks):
            self.returnable += sum(block.size for block in holes)

    @property
    def largest(self) -> int:
        return max(self.holes, default=0)

    def stranded(self, smallest: Mapping[tuple[str, int], int]) -> int:
        """Bytes in holes too small for the smallest request the trace shows for this class and stream."""
        least = smallest.get((self.pool, self.stream))
        return sum(hole for hole in self.holes if least is None or hole < least)

    def use(self) -> GroupUse:
        return GroupUse(
            pool_id=self.pool_id,
            pool=self.pool,
            stream=self.stream,
            reserved_bytes=self.reserved,
            active_bytes=self.allocated + self.pending,
            inactive_bytes=sum(self.holes),
            returnable_bytes=self.returnable,
            largest_inactive_bytes=self.largest,
        )


def _smallest_requests(snapshot: Snapshot, device: int) -> Mapping[tuple[str, int], int] | None:
    """The smallest rounded request by size class and stream; None when the trace shows none."""
    trace = trace_of(snapshot, device)
    rows = rows_of(trace, "alloc", "oom")
    if not len(rows):
        return None
    size = np.maximum(-(-trace.size[rows] // MIN_BLOCK) * MIN_BLOCK, MIN_BLOCK)
    stream = trace.stream[rows]
    smallest = {}
    for pool, belongs in (("small", size <= SMALL_SIZE), ("large", size > SMALL_SIZE)):
        for own in np.unique(stream[belongs]):
            smallest[pool, int(own)] = int(size[belongs & (stream == own)].min())
    return smallest
