"""Bytes by the line that asked for them: at the peak, at the end, or after any event. It judges nothing."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from vramdoc.evidence.attribution import (
    BEFORE_RECORDING,
    Site,
    SiteNames,
    site_of_frames,
    sites_of_stacks,
)
from vramdoc.evidence.lifetimes import BEFORE, Lifetimes, lifetimes
from vramdoc.evidence.origin import trace_of
from vramdoc.snapshot.model import StackTable

if TYPE_CHECKING:
    import numpy.typing as npt

    from vramdoc.snapshot.model import BlockInfo, Snapshot


@dataclass(frozen=True, slots=True, kw_only=True)
class SiteUse:
    """What one line holds."""

    site: Site
    bytes: int
    """Of its blocks, rounding included."""
    count: int


@dataclass(frozen=True, slots=True, kw_only=True)
class SitedLifetimes:
    """Lifetimes with the site of every row."""

    lifetimes: Lifetimes
    sites: tuple[Site, ...]
    site: npt.NDArray[np.int32]
    """Index in ``sites`` by row."""

    def use_after(self, event: int) -> tuple[SiteUse, ...]:
        """What each site holds after ``event``, largest first; -1 is the moment before the trace."""
        rows = self.lifetimes.live_after(event)
        count = np.bincount(self.site[rows], minlength=len(self.sites))
        total = np.zeros(len(self.sites), np.int64)
        np.add.at(total, self.site[rows], self.lifetimes.size[rows])
        uses = [
            SiteUse(site=self.sites[i], bytes=int(total[i]), count=int(count[i]))
            for i in np.flatnonzero(count)
        ]
        return tuple(sorted(uses, key=lambda use: (-use.bytes, use.site)))


def sited_lifetimes(
    snapshot: Snapshot, device: int, allocations: Lifetimes | None = None
) -> SitedLifetimes:
    """Find the site of every allocation.

    What was allocated before the trace began has a site only while it is live, from the stack kept with its block.
    """
    own = allocations if allocations is not None else lifetimes(snapshot, device)
    stacks = trace_of(snapshot, device).stacks
    table = stacks if isinstance(stacks, StackTable) else EMPTY_TABLE
    sites, by_stack = sites_of_stacks(table)
    codes = {site: code for code, site in enumerate(sites)}
    site = np.zeros(len(own), np.int32)
    known = own.stack >= 0
    site[known] = by_stack[own.stack[known]]
    older = np.flatnonzero(own.started == BEFORE)
    gone = older[own.block[older] < 0]
    site[gone] = codes.setdefault(BEFORE_RECORDING, len(codes))
    held = older[own.block[older] >= 0]
    names = SiteNames(table.frames)
    by_block = _sites_of_blocks([own.blocks[i] for i in own.block[held]], names)
    site[held] = [codes.setdefault(found, len(codes)) for found in by_block]
    return SitedLifetimes(lifetimes=own, sites=tuple(codes), site=site)


EMPTY_TABLE = StackTable(frames=(), indices=np.empty(0, np.int32), ends=np.zeros(1, np.int64))


def _sites_of_blocks(blocks: Sequence[BlockInfo], names: SiteNames) -> list[Site]:
    """Sites of blocks; blocks of one stack share the tuple of frames, so each stack is looked at once."""
    known: dict[int, Site] = {}
    return [
        known[id(block.frames)]
        if id(block.frames) in known
        else known.setdefault(
            id(block.frames),
            site_of_frames(block.frames, names) if block.frames else BEFORE_RECORDING,
        )
        for block in blocks
    ]
