"""Sessions that ended and whose memory did not: bytes allocated inside one that are still live after further ones have ended.

What a session is, the program says: phases of one name with a number in it (``vramdoc.mark("request 12")``), or phases that say
which session they belong to (``vramdoc.mark("turn", session=12)``). That it is over is what the program's own phases say, too: none
of its phases comes after. It judges nothing.
"""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from vramdoc.evidence.callsites import SitedLifetimes, SiteUse
from vramdoc.evidence.growth import FEWEST_STEPS, STEADY
from vramdoc.evidence.origin import trace_of

if TYPE_CHECKING:
    import numpy.typing as npt

    from vramdoc.record.manifest import Phase
    from vramdoc.snapshot.model import Snapshot

LATER = 2
"""Further sessions that must have ended as well: the next one may still reuse or replace what the last one left (a variable that
holds the last answer, a cache of one)."""
_NUMBER = re.compile(r"\d+")


@dataclass(frozen=True, slots=True, kw_only=True)
class Outlived:
    """What ended sessions left behind."""

    name: str
    """What they are called: ``request``, ``session``."""
    sessions: int
    """Ended ones that were looked at: all but the first, which fills caches, and the last ``LATER``."""
    kept_sessions: int
    """Of those: how many left something."""
    per_session_bytes: int
    """Median of what one left, ``LATER`` sessions after its end."""
    live_bytes: int
    """Of all of them together, live at the end of the trace."""
    sites: tuple[SiteUse, ...]
    """The lines that allocated it, largest first."""


def outlived(
    snapshot: Snapshot, sited: SitedLifetimes, phases: Sequence[Phase] = ()
) -> Outlived | None:
    """Measure what sessions left behind; None when there are too few, or when most left nothing."""
    trace = trace_of(snapshot, sited.lifetimes.device)
    if not len(trace) or trace.time_us[-1] < 0:
        return None
    found = [_measured(name, parts, trace.time_us, sited) for name, parts in _sessions(phases)]
    return max(
        (entry for entry in found if entry is not None),
        key=lambda entry: (entry.live_bytes, entry.name),
        default=None,
    )


_Intervals = list[tuple[int, int]]


def _sessions(phases: Sequence[Phase]) -> list[tuple[str, list[_Intervals]]]:
    """Kinds of sessions, each session as the stretches of time that belong to it, ordered by their ends."""
    kinds: dict[str, dict[str, _Intervals]] = defaultdict(lambda: defaultdict(list))
    for phase in phases:
        named = phase.detail.get("session")
        kind = "session" if named is not None else _NUMBER.sub("", phase.name).strip(" -_#:")
        key = str(named) if named is not None else phase.name
        if phase.ended_us is not None and key != kind:
            kinds[kind][key].append((phase.started_us, phase.ended_us))
    return [
        (kind, sorted(sessions.values(), key=lambda parts: max(end for _, end in parts)))
        for kind, sessions in sorted(kinds.items())
    ]


def _measured(
    name: str,
    sessions: Sequence[_Intervals],
    time_us: npt.NDArray[np.int64],
    sited: SitedLifetimes,
) -> Outlived | None:
    if len(sessions) < FEWEST_STEPS + 1 + LATER:
        return None
    rows = sited.lifetimes
    left: list[int] = []
    still = np.zeros(len(rows), bool)
    for position in range(1, len(sessions) - LATER):
        over = max(end for _, end in sessions[position + LATER])
        last = int(np.searchsorted(time_us, over, side="right")) - 1
        kept = _started_in(sessions[position], time_us, rows.started) & (rows.ended > last)
        left.append(int(rows.size[kept].sum()))
        still |= kept
    keepers = sum(size > 0 for size in left)
    if keepers < STEADY * len(left):
        return None
    still &= rows.ended >= rows.events
    return Outlived(
        name=name,
        sessions=len(left),
        kept_sessions=keepers,
        per_session_bytes=int(np.median(left)),
        live_bytes=int(rows.size[still].sum()),
        sites=_by_site(sited, still),
    )


def _started_in(
    parts: _Intervals, time_us: npt.NDArray[np.int64], started: npt.NDArray[np.int64]
) -> npt.NDArray[np.bool_]:
    inside = np.zeros(len(started), bool)
    for start, end in parts:
        first = np.searchsorted(time_us, start, side="left")
        behind = np.searchsorted(time_us, end, side="right")
        inside |= (started >= first) & (started < behind)
    return inside


def _by_site(sited: SitedLifetimes, chosen: npt.NDArray[np.bool_]) -> tuple[SiteUse, ...]:
    sums: Mapping[int, list[int]] = defaultdict(lambda: [0, 0])
    sizes, sites = sited.lifetimes.size[chosen].tolist(), sited.site[chosen].tolist()
    for size, site in zip(sizes, sites, strict=True):
        sums[site][0] += size
        sums[site][1] += 1
    uses = [
        SiteUse(site=sited.sites[site], bytes=size, count=count)
        for site, (size, count) in sums.items()
    ]
    return tuple(sorted(uses, key=lambda use: (-use.bytes, use.site)))
