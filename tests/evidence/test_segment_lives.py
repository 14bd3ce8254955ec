"""Undoing the trace from the final segments gives what really was reserved after every event."""

from __future__ import annotations

import os
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.report.traces import stepping_snapshot
from vramdoc.evidence.lifetimes import lifetimes
from vramdoc.evidence.segment_lives import segment_lives
from vramdoc.evidence.timeline import timeline
from vramdoc.snapshot.model import ACTIONS, SegmentInfo, Snapshot, Trace
from vramdoc.snapshot.reader import read_snapshot

PAGE = 20 << 20
BASE = 0x7F0000000000
CORPUS = sorted(Path(__file__).parents[2].parent.glob("shared/snapshots/*.pickle"))


def pages_to_segments(pages: set[int]) -> tuple[SegmentInfo, ...]:
    """Maximal runs of reserved pages, as a snapshot shows an expandable segment."""
    segments, run = [], []
    for page in [*sorted(pages), None]:
        if run and page != run[-1] + 1:
            segments.append(
                SegmentInfo(
                    device=0, address=BASE + run[0] * PAGE, total_size=len(run) * PAGE, allocated_size=0,
                    active_size=0, requested_size=0, stream=0, segment_type="large", segment_pool_id=(0, 0),
                    is_expandable=True, blocks=(),
                )
            )  # fmt: skip
            run = []
        if page is not None:
            run.append(page)
    return tuple(segments)


@given(
    st.sets(st.integers(0, 12)),
    st.lists(st.tuples(st.integers(0, 12), st.integers(1, 4)), max_size=30),
)
def test_every_moment_is_restored(before: set[int], moves: list[tuple[int, int]]) -> None:
    pages, states, rows = set(before), [set(before)], []
    for first, count in moves:
        touched = set(range(first, first + count))
        if touched <= pages:
            pages, action = pages - touched, "segment_unmap"
        elif not touched & pages:
            pages, action = pages | touched, "segment_map"
        else:
            continue
        rows.append((ACTIONS.index(action), BASE + first * PAGE, count * PAGE))
        states.append(set(pages))
    columns = np.array(rows, np.int64).reshape(-1, 3)
    none = np.full(len(rows), -1)
    trace = Trace(
        device=0, actions=ACTIONS, action=columns[:, 0].astype(np.uint8), address=columns[:, 1], size=columns[:, 2],
        stream=none * 0, time_us=none, pool=none.astype(np.int16), stack=none.astype(np.int32), pools=(), stacks=(),
    )  # fmt: skip
    snapshot = Snapshot(segments=pages_to_segments(pages), traces=(trace,), allocator_settings={})
    lives = segment_lives(snapshot, 0)
    for event, expected in enumerate(states, start=-1):
        held: list[int] = []
        for row in lives.at(event):
            start = (int(lives.address[row]) - BASE) // PAGE
            held += range(start, start + int(lives.size[row]) // PAGE)
        assert sorted(held) == sorted(set(held)) == sorted(expected)


@pytest.mark.corpus
@pytest.mark.skipif(not CORPUS, reason="../shared is absent")
@pytest.mark.parametrize("path", CORPUS, ids=lambda path: os.fspath(path.stem))
def test_reserved_bytes_agree_with_the_timeline(path: Path) -> None:
    snapshot = read_snapshot(path)
    lives, levels = segment_lives(snapshot, 0), timeline(snapshot, 0)
    assert sum(lives.size[lives.at(int(levels.event[-1]))]) == levels.reserved[-1]
    for row in range(0, len(levels), max(1, len(levels) // 50)):
        assert sum(lives.size[lives.at(int(levels.event[row]))]) == levels.reserved[row]


@pytest.mark.corpus
@pytest.mark.skipif(not CORPUS, reason="../shared is absent")
@pytest.mark.parametrize(
    "path", [p for p in CORPUS if "synthetic" not in p.stem], ids=lambda path: os.fspath(path.stem)
)
def test_layouts_of_real_recordings_hold_all_active_bytes(path: Path) -> None:
    """The synthetic one is left out: it allocates outside its own segments."""
    snapshot = read_snapshot(path)
    lives, allocations = segment_lives(snapshot, 0), lifetimes(snapshot, 0)
    levels = timeline(snapshot, 0, allocations)
    for row in range(0, len(levels), max(1, len(levels) // 20)):
        pieces = [
            p for group in lives.layout(int(levels.event[row]), allocations).values() for p in group
        ]
        assert sum(size for _, size in pieces) == levels.reserved[row]
        assert sum(size for state, size in pieces if state != "inactive") == levels.active[row]


def test_a_layout_holds_all_bytes_of_its_moment() -> None:
    snapshot = stepping_snapshot()
    lives, allocations = segment_lives(snapshot, 0), lifetimes(snapshot, 0)
    levels = timeline(snapshot, 0, allocations)
    for row, event in enumerate(levels.event.tolist()):
        sums = dict.fromkeys(("inactive", "active_pending_free", "active_allocated"), 0)
        for pieces in lives.layout(event, allocations).values():
            for state, size in pieces:
                sums[state] += size
        assert sum(sums.values()) == levels.reserved[row]
        assert sums["active_allocated"] == levels.allocated[row]
        assert sums["active_allocated"] + sums["active_pending_free"] == levels.active[row]
