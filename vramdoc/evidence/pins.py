"""Pins: which lines hold segments that are otherwise free. One live block keeps a whole segment from being returned to the driver.

It counts classic segments of the default pools; pages of expandable ones are returned singly (allocator-spec 4.6).
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING

from vramdoc.evidence.measure import DEFAULT_POOL

if TYPE_CHECKING:
    from vramdoc.evidence.attribution import Site
    from vramdoc.evidence.callsites import SitedLifetimes
    from vramdoc.snapshot.model import Snapshot


@dataclass(frozen=True, slots=True, kw_only=True)
class Pin:
    """One line and the segments that only its blocks keep."""

    site: Site
    inactive_bytes: int
    """Free bytes in those segments, which ``empty_cache`` would return were it not for these blocks."""
    live_bytes: int
    """Bytes of the blocks themselves."""
    segments: int
    blocks: int


def pins(snapshot: Snapshot, sited: SitedLifetimes) -> tuple[Pin, ...]:
    """Lines that alone keep partly free segments, by the free bytes they keep, largest first."""
    sites = _site_by_address(sited)
    free: dict[Site, int] = defaultdict(int)
    live: dict[Site, int] = defaultdict(int)
    segments: dict[Site, int] = defaultdict(int)
    blocks: dict[Site, int] = defaultdict(int)
    for segment in snapshot.segments:
        if (
            segment.device != sited.lifetimes.device
            or segment.is_expandable
            or segment.segment_pool_id != DEFAULT_POOL
        ):
            continue
        held = [block for block in segment.blocks if block.state != "inactive"]
        holders = {sites[block.address] for block in held}
        size = sum(block.size for block in held)
        if len(holders) != 1 or size == segment.total_size:
            continue
        (site,) = holders
        free[site] += segment.total_size - size
        live[site] += size
        segments[site] += 1
        blocks[site] += len(held)
    found = (
        Pin(
            site=s,
            inactive_bytes=free[s],
            live_bytes=live[s],
            segments=segments[s],
            blocks=blocks[s],
        )
        for s in free
    )
    return tuple(sorted(found, key=lambda pin: (-pin.inactive_bytes, pin.site)))


def _site_by_address(sited: SitedLifetimes) -> Mapping[int, Site]:
    rows = sited.lifetimes
    return {
        rows.blocks[index].address: sited.sites[site]
        for index, site in zip(rows.block.tolist(), sited.site.tolist(), strict=True)
        if index >= 0
    }
