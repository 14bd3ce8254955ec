"""What is taken out of a trace, and which traces are refused, at their first contradiction."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from tests.replay.recordings import Recorder
from vramdoc.errors import Contradiction, UsageError
from vramdoc.replay.from_trace import requests_of
from vramdoc.replay.replayable import replayable
from vramdoc.replay.requests import Op
from vramdoc.snapshot.model import Snapshot
from vramdoc.snapshot.reader import read_snapshot
from vramdoc.snapshot.schema import snapshot_from_plain

MIB = 1 << 20
BASE = 0x7F0000000000


def event(action: str, address: int = BASE, size: int = 1000, **more: Any) -> dict[str, Any]:
    return {"action": action, "addr": address, "size": size, "stream": 0, **more}


def segment(
    *blocks: tuple[int, int, str], address: int = BASE, size: int = 2 * MIB, **more: Any
) -> dict[str, Any]:
    active = sum(block for _, block, state in blocks if state != "inactive")
    return {
        "device": 0, "address": address, "total_size": size, "allocated_size": active, "active_size": active,
        "requested_size": active, "stream": 0, "segment_type": "small" if size == 2 * MIB else "large",
        "segment_pool_id": (0, 0), "is_expandable": False,
        "blocks": [{"address": a, "size": s, "requested_size": s, "state": state} for a, s, state in blocks], **more,
    }  # fmt: skip


def snapshot(events: list[dict[str, Any]], *segments: dict[str, Any], device: int = 0) -> Snapshot:
    traces: list[list[dict[str, Any]]] = [[] for _ in range(device + 1)]
    traces[device] = events
    return snapshot_from_plain({"segments": list(segments), "device_traces": traces})


EMPTY = segment((BASE, 2 * MIB, "inactive"))


def test_events_become_operations_on_numbered_blocks() -> None:
    events = [
        event("segment_alloc", size=2 * MIB),
        event("alloc"),
        event("alloc", BASE + 1024),
        event("free_requested"),
        event("free_completed"),
        event("alloc", size=700),
        event("snapshot", 0, 0),
        event("free_requested", BASE + 1024),
        event("free_requested", size=700),
        event("free_completed", size=700),
        event("free_completed", BASE + 1024),
    ]
    requests = requests_of(snapshot(events, EMPTY), 0)
    assert [Op(op).name for op in requests.op] == [
        "ALLOC",
        "ALLOC",
        "FREE",
        "ALLOC",
        "HOLD",
        "FREE",
        "COMPLETE",
    ]
    assert requests.block.tolist() == [0, 1, 0, 2, 1, 2, 1]
    assert requests.event.tolist() == [1, 2, 3, 5, 7, 8, 10]
    assert requests.notes == (
        "1 frees waited for another stream; they complete where the trace says they did",
    )


def test_blocks_older_than_the_trace_come_first() -> None:
    events = [
        event("free_requested", BASE + 1024),
        event("free_completed", BASE + 1024),
        event("alloc", BASE + 1024, 512),
    ]
    live = segment(
        (BASE, 1024, "active_allocated"),
        (BASE + 1024, 512, "active_allocated"),
        (BASE + 1536, 2 * MIB - 1536, "inactive"),
    )
    requests = requests_of(snapshot(events, live), 0)
    assert requests.older.address.tolist() == [BASE + 1024, BASE]
    assert requests.older.freed.tolist() == [0, -1]
    assert requests.block.tolist() == [0, 2]


@pytest.mark.parametrize(
    ("events", "segments", "message"),
    [
        (
            [event("alloc"), event("alloc")],
            [EMPTY],
            r"event 1 allocates 0x7f0000000000, which event 0 left allocated",
        ),
        (
            [event("free_requested"), event("free_completed"), event("free_requested")],
            [EMPTY],
            r"event 2 frees 0x7f0000000000, which event 1 left free",
        ),
        (
            [event("alloc"), event("free_requested"), event("alloc")],
            [EMPTY],
            r"event 2 allocates 0x7f0000000000, which event 1 left freed and not yet completed",
        ),
        (
            [event("alloc"), event("alloc", BASE + 1024)],
            [EMPTY],
            r"event 0 allocates .* yet the segments show no live block",
        ),
        (
            [event("free_requested"), event("free_completed")],
            [segment((BASE, 2 * MIB, "active_allocated"))],
            r"event 1 frees .* for good, yet the segments show a live block",
        ),
        (
            [event("free_requested", BASE + (1 << 30)), event("free_completed", BASE + (1 << 30))],
            [EMPTY],
            r"in no segment",
        ),
        (
            [event("segment_alloc", BASE + (1 << 30), 2 * MIB)],
            [EMPTY],
            r"event 0 obtains a segment .* that nothing returns",
        ),
    ],
)
def test_a_trace_that_contradicts_itself_is_refused_at_its_first_contradiction(
    events: list[dict[str, Any]], segments: list[dict[str, Any]], message: str
) -> None:
    with pytest.raises(Contradiction, match=message):
        replayable(snapshot(events, *segments), release="2.14")


@pytest.mark.corpus
def test_invented_snapshots_are_refused(corpus: Path) -> None:
    with pytest.raises(Contradiction, match="expandable segment at 0x"):
        replayable(read_snapshot(corpus / "snapshots" / "synthetic-mosaic-output.pickle"))


def test_a_device_without_events_is_a_usage_error() -> None:
    with pytest.raises(UsageError, match="no events of device 1"):
        replayable(snapshot([event("alloc")], EMPTY), device=1)
    found = replayable(
        snapshot(
            [event("segment_alloc", size=2 * MIB, device=1)], {**EMPTY, "device": 1}, device=1
        ),
        release="2.14",
    )
    assert found.requests.device == 1


def test_a_recording_under_nvidias_allocator_cannot_be_replayed() -> None:
    recorded = snapshot_from_plain(
        {
            "segments": [EMPTY],
            "device_traces": [[event("segment_alloc", size=2 * MIB)]],
            "allocator_settings": {"PYTORCH_CUDA_ALLOC_CONF": "backend:cudaMallocAsync"},
        }
    )
    with pytest.raises(UsageError, match="NVIDIA's allocator"):
        replayable(recorded, release="2.14")


def test_the_programs_own_empty_cache_is_told_from_a_flush() -> None:
    own = Recorder("", "2.14").run(
        [("malloc", 30 * MIB, 0), ("free", 0, 0), ("empty_cache", 0, 0), ("malloc", 20 * MIB, 0)]
    )
    requests = replayable(own.snapshot(), release="2.14").requests
    assert (requests.op == Op.EMPTY_CACHE).sum() == 1
    short = Recorder("", "2.14", capacity=64 * MIB)
    short.run(
        [("malloc", 30 * MIB, 0), ("malloc", 30 * MIB, 0), ("free", 0, 0), ("malloc", 34 * MIB, 0)]
    )
    recording = replayable(short.snapshot(), release="2.14")
    assert not (recording.requests.op == Op.EMPTY_CACHE).any()
    assert "1 times cached memory was returned" in recording.requests.notes[0]


def test_the_size_of_the_device_is_read_from_an_out_of_memory_event() -> None:
    recorder = Recorder("", "2.14", capacity=64 * MIB).run(
        [("malloc", 30 * MIB, 0), ("malloc", 60 * MIB, 0)]
    )
    recording = replayable(recorder.snapshot(), release="2.14")
    assert recording.device.total == 64 * MIB
    assert "30.00 MiB reserved and 34.00 MiB free" in recording.device.source
    assert [Op(op).name for op in recording.requests.op] == ["ALLOC", "FAILED"]


def test_a_release_without_pool_ids_takes_pools_from_the_segments() -> None:
    private = segment(
        (BASE, 1024, "active_allocated"),
        (BASE + 1024, 2 * MIB - 1024, "inactive"),
        segment_pool_id=(1, 0),
    )
    requests = requests_of(
        snapshot([event("segment_alloc", size=2 * MIB), event("alloc")], private), 0
    )
    assert requests.pools[requests.pool[0]] == (1, 0)
    assert any("no pool with its events" in note for note in requests.notes)
    assert any("CUDA graphs" in note for note in requests.notes)


def test_what_if_requests_can_be_changed() -> None:
    requests = replayable(
        Recorder("", "2.14")
        .run([("malloc", MIB, 0), ("malloc", MIB, 0), ("empty_cache", 0, 0), ("malloc", MIB, 0)])
        .snapshot(),
        release="2.14",
    ).requests
    more = requests.with_empty_cache([1, 2])
    assert [Op(op).name for op in more.op] == [
        "ALLOC",
        "EMPTY_CACHE",
        "ALLOC",
        "EMPTY_CACHE",
        "ALLOC",
    ]
    assert more.event[1] == -1
    assert (more.without_empty_cache().op == requests.op).all()
