"""What the interactive page draws from, as compressed columns: every allocation's life, every segment's, stacks and moments.

A page stays under 3 MB for a million events: when all allocations do not fit, the least of them (bytes times life) are left out
and the page says how many. Levels are never thinned by that: they come from the timeline. It knows no HTML.
"""

from __future__ import annotations

import base64
import json
import zlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from vramdoc.evidence.callsites import sited_lifetimes
from vramdoc.evidence.lifetimes import lifetimes
from vramdoc.evidence.origin import device_of_interest, rows_of, trace_of
from vramdoc.evidence.segment_lives import segment_lives
from vramdoc.evidence.timeline import LEVELS, timeline

if TYPE_CHECKING:
    import numpy.typing as npt

    from vramdoc.evidence.callsites import SitedLifetimes
    from vramdoc.evidence.case import Case
    from vramdoc.evidence.segment_lives import SegmentLives
    from vramdoc.evidence.timeline import Timeline
    from vramdoc.snapshot.model import Frame, Trace

    Integers = npt.NDArray[np.int64]

BUDGET = 1_900_000
"""Compressed bytes of the allocations. In base64 a third more; with levels, stacks and scripts the page stays under 3 MB."""
LEVEL_ROWS = 12_000
"""Rows of the timeline: several for every pixel of a wide screen, and each stretch keeps its extremes."""
TIME_MARKS = 2_000
"""Events whose time is kept; between two of them the page interpolates."""
MOST_STACKS, DEEPEST = 4_000, 24
"""Stacks kept, largest by bytes first, and innermost frames of each."""
MOST_SITES = 20
"""Rows of the ranking."""


@dataclass(frozen=True, slots=True, kw_only=True)
class PageData:
    """Everything the scripts read."""

    json: str
    """One JSON object: small things as they are, columns as base64 of deflated varints."""
    events: int
    moments: Mapping[str, int]
    allocations: int
    left_out: int
    """Allocations that are not in the page."""
    moments_are_whole: bool
    """Whether none of them is live at one of ``moments``."""

    @property
    def has_trace(self) -> bool:
        """Whether there is a time to show, not only an end."""
        return self.events > 0


def page_data(case: Case | None) -> PageData | None:
    """Build the data of ``case``; None when it has no snapshot."""
    snapshot = (case.oom_snapshot or case.snapshot) if case is not None else None
    if case is None or snapshot is None:
        return None
    device = case.usage.device if case.usage is not None else device_of_interest(snapshot)
    trace = trace_of(snapshot, device)
    own = lifetimes(snapshot, device)
    levels = timeline(snapshot, device, own)
    sited = sited_lifetimes(snapshot, device, own)
    moments = _moments(levels, trace)
    worth = _worth(sited, moments)
    kept, columns = _allocations(sited, trace, worth)
    data = {
        "device": device,
        "events": len(trace),
        "moments": moments,
        "phases": _phases(case, trace),
        "times": _times(trace),
        "levels": _levels(levels),
        "segments": _segments(segment_lives(snapshot, device)),
        "allocations": columns,
        "sites": [str(site) for site in sited.sites],
        "ranking": _ranking(sited, moments),
        "request": _request(case),
    }
    return PageData(
        json=json.dumps(data, sort_keys=True, separators=(",", ":")),
        events=len(trace),
        moments=moments,
        allocations=len(own),
        left_out=len(own) - kept,
        moments_are_whole=bool(kept >= np.count_nonzero(np.isinf(worth))),
    )


def packed(values: Any) -> str:
    """Whole numbers >= 0 as base64 of deflated LEB128 varints (seven bits a byte, low ones first)."""
    return _text(_deflated(values))


def _text(deflated: bytes) -> str:
    return base64.b64encode(deflated).decode("ascii")


def _deflated(values: Any) -> bytes:
    return zlib.compress(_varints(np.asarray(values, np.int64)), 9)


def _varints(values: Integers) -> bytes:
    assert not len(values) or values.min() >= 0, "varints hold no sign"
    length = np.ones(len(values), np.int64)
    for bits in range(7, 63, 7):
        length += values >= (1 << bits)
    out = np.zeros(int(length.sum()), np.uint8)
    start = np.cumsum(length) - length
    for byte in range(int(length.max(initial=0))):
        has = length > byte
        more = (length[has] > byte + 1).astype(np.uint8) << 7
        out[start[has] + byte] = (values[has] >> (7 * byte) & 0x7F).astype(np.uint8) | more
    return out.tobytes()


def _zigzag(values: Integers) -> Integers:
    """Signed to unsigned: 0, -1, 1, -2 become 0, 1, 2, 3."""
    return np.where(values < 0, -2 * values - 1, 2 * values)


def _moments(levels: Timeline, trace: Trace) -> dict[str, int]:
    """Events worth a button. ``active`` and ``reserved`` are the peaks, ``failure`` the last out-of-memory event."""
    failures = rows_of(trace, "oom")
    moments = {f"peak {level}": levels.peak(level)[1] for level in ("active", "reserved")}
    if len(failures):
        moments["failure"] = int(failures[-1])
    moments["end"] = len(trace) - 1
    return moments


def _phases(case: Case, trace: Trace) -> list[dict[str, Any]]:
    if case.manifest is None or not len(trace) or int(trace.time_us.max()) < 0:
        return []
    return [
        {"name": phase.name, "event": int(np.searchsorted(trace.time_us, phase.started_us))}
        for phase in case.manifest.phases
    ]


def _times(trace: Trace) -> dict[str, Any] | None:
    """Sparse event -> microseconds since the first event; None where the release recorded no time."""
    if not len(trace) or int(trace.time_us.min()) < 0:
        return None
    rows = np.unique(np.linspace(0, len(trace) - 1, TIME_MARKS).astype(np.int64))
    since = np.maximum.accumulate(trace.time_us[rows] - trace.time_us[0])
    return {"event": packed(np.diff(rows, prepend=0)), "us": packed(np.diff(since, prepend=0))}


def _levels(levels: Timeline) -> dict[str, str]:
    thin = levels.downsampled(LEVEL_ROWS)
    columns = {"event": packed(np.diff(thin.event, prepend=-1))}
    for name in LEVELS:
        columns[name] = packed(_zigzag(np.diff(getattr(thin, name), prepend=0)))
    return columns


def _segments(lives: SegmentLives) -> dict[str, Any]:
    return {
        "groups": [
            {"pool": g.pool, "pool_id": list(g.pool_id), "stream": g.stream, "private": g.is_private}
            for g in lives.groups
        ],
        "started": packed(lives.started + 1),
        "ended": packed(lives.ended + 1),
        "address": packed(_zigzag(np.diff(lives.address, prepend=0))),
        "size": packed(lives.size),
        "group": packed(lives.group),
    }  # fmt: skip


def _worth(sited: SitedLifetimes, moments: Mapping[str, int]) -> npt.NDArray[np.float64]:
    """Bytes times life by allocation; without bound for what is live at a moment that a button leads to."""
    own = sited.lifetimes
    worth: npt.NDArray[np.float64] = own.size * (own.ended - own.started).astype(float)
    for event in moments.values():
        worth[own.live_after(event)] = np.inf
    return worth


def _allocations(
    sited: SitedLifetimes, trace: Trace, worth: npt.NDArray[np.float64]
) -> tuple[int, dict[str, Any]]:
    """How many allocations fit into BUDGET, the worthiest first, and their columns."""
    ranked = np.argsort(-worth, kind="stable")
    keep = len(ranked)
    while True:
        rows = np.sort(ranked[:keep])
        stack, stacks = _stacks(sited, rows, trace)
        columns = {**_columns(sited, rows), "stack": _deflated(stack)}
        weight = sum(len(column) for column in columns.values())
        if weight <= BUDGET or keep == 0:
            break
        keep = int(keep * BUDGET / weight * 0.97)
    texts: dict[str, Any] = {name: _text(column) for name, column in columns.items()}
    return keep, {**texts, "stacks": _interned(stacks), "count": keep}


def _columns(sited: SitedLifetimes, rows: npt.NDArray[np.intp]) -> dict[str, bytes]:
    """Deflated columns. What repeats from step to step (size, stack, stream) is one code, a kind."""
    own = sited.lifetimes
    address, where = np.unique(own.address[rows], return_inverse=True)
    properties = np.stack(
        [own.size[rows], own.requested[rows], own.stream[rows], sited.site[rows].astype(np.int64)], axis=1
    )  # fmt: skip
    kinds, kind = np.unique(properties, axis=0, return_inverse=True)
    return {
        "started": _deflated(np.diff(own.started[rows] + 1, prepend=0)),
        "life": _deflated(own.ended[rows] - own.started[rows]),
        "pending": _deflated(own.ended[rows] - np.maximum(own.given_back[rows], own.started[rows])),
        "addresses": _deflated(np.diff(address, prepend=0)),
        "address": _deflated(where.reshape(-1)),
        "kind": _deflated(kind.reshape(-1)),
        "kind_size": _deflated(kinds[:, 0]),
        "kind_requested": _deflated(kinds[:, 1]),
        "kind_stream": _deflated(_zigzag(kinds[:, 2])),
        "kind_site": _deflated(kinds[:, 3]),
    }


def _stacks(
    sited: SitedLifetimes, rows: npt.NDArray[np.intp], trace: Trace
) -> tuple[Integers, list[tuple[Frame, ...]]]:
    """A code + 1 a row, 0 where no stack was kept or it ranks too low, and the stacks by code."""
    own = sited.lifetimes
    codes = own.stack[rows].copy()
    extra = _stacks_of_blocks(sited, rows, codes, first_code=len(trace.stacks))
    known = codes >= 0
    used, where = np.unique(codes[known], return_inverse=True)
    held = np.bincount(where.reshape(-1), weights=own.size[rows][known], minlength=len(used))
    best = np.argsort(-held, kind="stable")[:MOST_STACKS]
    new_code = np.zeros(len(used), np.int64)
    new_code[best] = np.arange(1, len(best) + 1)
    column = np.zeros(len(rows), np.int64)
    column[known] = new_code[where.reshape(-1)]
    offset = len(trace.stacks)
    return column, [
        extra[code - offset] if code >= offset else trace.stacks[code]
        for code in used[best].tolist()
    ]


def _stacks_of_blocks(
    sited: SitedLifetimes, rows: npt.NDArray[np.intp], codes: Integers, *, first_code: int
) -> list[tuple[Frame, ...]]:
    """Fill in ``codes`` of allocations whose stack was kept with their block only; returns these stacks."""
    own = sited.lifetimes
    code_of: dict[int, int] = {}
    stacks: list[tuple[Frame, ...]] = []
    for index in np.flatnonzero((codes < 0) & (own.block[rows] >= 0)).tolist():
        frames = own.blocks[own.block[rows[index]]].frames
        if not frames:
            continue
        if id(frames) not in code_of:
            code_of[id(frames)] = first_code + len(stacks)
            stacks.append(frames)
        codes[index] = code_of[id(frames)]
    return stacks


def _interned(stacks: Sequence[tuple[Frame, ...]]) -> dict[str, Any]:
    frames: dict[str, int] = {}
    codes = [
        [
            frames.setdefault(f"{f.name}\n{f.filename}:{f.line}", len(frames))
            for f in stack[:DEEPEST]
        ]
        for stack in stacks
    ]
    return {
        "frames": _text(zlib.compress(json.dumps(list(frames)).encode(), 9)),
        "lengths": packed([len(stack) for stack in codes]),
        "codes": packed([code for stack in codes for code in stack]),
    }


def _ranking(sited: SitedLifetimes, moments: Mapping[str, int]) -> dict[str, list[dict[str, Any]]]:
    """Call sites by bytes at each moment."""
    codes = {site: code for code, site in enumerate(sited.sites)}
    return {
        name: [
            {"site": codes[use.site], "bytes": use.bytes, "count": use.count}
            for use in sited.use_after(event)[:MOST_SITES]
        ]
        for name, event in moments.items()
    }


def _request(case: Case) -> dict[str, Any] | None:
    """The failed request and the largest hole, in bytes."""
    oom = case.oom
    if oom is None or oom.requested is None:
        return None
    hole = oom.largest_hole.value if oom.largest_hole is not None else None
    return {"bytes": oom.requested.value, "hole": hole}
