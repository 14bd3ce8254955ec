"""Many ranks of one run: what each holds at its peak, and which one stands out, by which lines. It judges nothing.

Of a rank only a summary is kept, so that a thousand of them can be read one after the other.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass
from statistics import median

from vramdoc.evidence.attribution import Site
from vramdoc.evidence.usage import Levels

STANDS_OUT = 0.05
"""Part of the other ranks' median by which a rank must lie above it. Ranks of one data-parallel run execute the same program; uneven
batches move their peaks by a few percent, and a line that only one rank runs by more."""
MOST_LINES = 10


@dataclass(frozen=True, slots=True, kw_only=True)
class RankSummary:
    """One rank, reduced to what comparing needs."""

    rank: int
    name: str
    peak: Levels
    end: Levels
    failed: bool
    """Whether it ran out of memory."""
    sites: tuple[tuple[Site, int], ...]
    """Bytes by call site at its peak of active memory."""


@dataclass(frozen=True, slots=True, kw_only=True)
class SiteExcess:
    """One line and what the rank holds there beyond the median of the others."""

    site: Site
    bytes: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Outlier:
    """The rank that stands out: "rank 3: 4.1 GiB over the median, 3.9 of it at line ..."."""

    rank: int
    over_bytes: int
    """Its peak of active memory beyond the median of the other ranks'."""
    sites: tuple[SiteExcess, ...]
    """Where the excess was allocated, largest first."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Ranks:
    """All ranks of a run, in order."""

    summaries: tuple[RankSummary, ...]
    median_active_peak: int
    outlier: Outlier | None
    """None when no rank lies clearly above the others."""


def compare_ranks(summaries: Sequence[RankSummary]) -> Ranks | None:
    """Find the rank that stands out; None for fewer than two ranks."""
    ordered = tuple(sorted(summaries, key=lambda summary: summary.rank))
    if len(ordered) < 2:
        return None
    return Ranks(
        summaries=ordered,
        median_active_peak=int(median(summary.peak.active for summary in ordered)),
        outlier=_outlier(ordered),
    )


def _outlier(ordered: Sequence[RankSummary]) -> Outlier | None:
    highest = max(ordered, key=lambda summary: (summary.peak.active, -summary.rank))
    others = [summary for summary in ordered if summary is not highest]
    usual = int(median(summary.peak.active for summary in others))
    over = highest.peak.active - usual
    if over <= STANDS_OUT * usual:
        return None
    held: dict[Site, list[int]] = defaultdict(list)
    for summary in others:
        for site, size in summary.sites:
            held[site].append(size)
    excess = []
    for site, size in highest.sites:
        # A site that a rank does not list counts as nothing there.
        elsewhere = held[site] + [0] * (len(others) - len(held[site]))
        excess.append(SiteExcess(site=site, bytes=size - int(median(elsewhere))))
    excess.sort(key=lambda line: (-line.bytes, line.site))
    return Outlier(
        rank=highest.rank,
        over_bytes=over,
        sites=tuple(line for line in excess if line.bytes > 0)[:MOST_LINES],
    )
