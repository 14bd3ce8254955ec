"""Holders: what kept device memory alive at the moment that matters, joined with the lines that allocated it. It judges nothing.

The recorded process looked for them (``record.inside.survey``); here their storages meet the snapshot of the same moment, by address.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass
from typing import TYPE_CHECKING

from vramdoc.evidence.attribution import Site, SiteNames
from vramdoc.evidence.callsites import EMPTY_TABLE, SitedLifetimes, SiteUse
from vramdoc.evidence.origin import trace_of
from vramdoc.record.holders import Collected, Holder, HolderKind, Survey
from vramdoc.snapshot.model import Frame, StackTable

if TYPE_CHECKING:
    from vramdoc.snapshot.model import Snapshot


@dataclass(frozen=True, slots=True, kw_only=True)
class Held:
    """One holder, and what it kept at that moment."""

    holder: Holder
    bytes: int
    """Of its blocks that are live in the snapshot, rounding included."""
    sites: tuple[SiteUse, ...]
    """The lines that allocated them, largest first."""
    place: Site | None
    """Where the holder's name stands, or where its container is filled; None where nobody knows."""

    @property
    def kind(self) -> HolderKind:
        """How it holds."""
        return self.holder.kind

    def bytes_at(self, site: Site) -> int:
        """What it keeps of one line's allocations."""
        return sum(use.bytes for use in self.sites if use.site == site)


@dataclass(frozen=True, slots=True, kw_only=True)
class Holders:
    """Everything that held memory at one moment, largest first."""

    held: tuple[Held, ...]
    moment: str
    """``"oom"``, ``"end"`` or ``"signal"``."""
    live_bytes: int
    """Of all live blocks; what ``held`` does not explain is native code's."""
    collected: Collected | None
    missing: str
    """Why they are not all there; empty when they are."""

    def of(self, *kinds: HolderKind) -> tuple[Held, ...]:
        """Those that hold in one of these ways."""
        return tuple(held for held in self.held if held.kind in kinds)


def holders(survey: Survey, snapshot: Snapshot, sited: SitedLifetimes) -> Holders:
    """Join a survey with the snapshot of the same moment."""
    rows = sited.lifetimes
    live = rows.live_after(rows.events - 1)
    addresses, sizes = rows.address[live].tolist(), rows.size[live].tolist()
    blocks = {
        address: (size, sited.sites[site])
        for address, size, site in zip(addresses, sizes, sited.site[live].tolist(), strict=True)
    }
    stacks = trace_of(snapshot, rows.device).stacks
    names = SiteNames((stacks if isinstance(stacks, StackTable) else EMPTY_TABLE).frames)
    held = [
        _held(holder, blocks, names) for holder in survey.holders if survey.device == rows.device
    ]
    held.sort(key=lambda entry: (-entry.bytes, entry.holder.what, entry.holder.line))
    return Holders(
        held=tuple(entry for entry in held if entry.bytes),
        moment=survey.moment,
        live_bytes=sum(sizes),
        collected=survey.collected,
        missing=survey.missing,
    )


def _held(holder: Holder, blocks: dict[int, tuple[int, Site]], names: SiteNames) -> Held:
    found = [blocks[address] for address in holder.blocks if address in blocks]
    size: Counter[Site] = Counter()
    for part, site in found:
        size[site] += part
    count = Counter(site for _, site in found)
    uses = [SiteUse(site=site, bytes=size[site], count=count[site]) for site in count]
    place = Frame(filename=holder.file, line=holder.line, name=holder.function)
    return Held(
        holder=holder,
        bytes=sum(part for part, _ in found),
        sites=tuple(sorted(uses, key=lambda use: (-use.bytes, use.site))),
        place=names.site(place) if holder.file and holder.line else None,
    )
