"""Every release's layout becomes the same records; what contradicts itself is said in sentences and survived."""

import pytest

from tests.snapshot.plain import FRAMES, block, event, segment, snapshot
from vramdoc.snapshot.model import Frame
from vramdoc.snapshot.schema import snapshot_from_plain


def test_torch_2_0_has_no_addresses_and_a_history_in_its_blocks():
    old = {
        "segments": [
            {
                "device": 0, "address": 4096, "total_size": 1536, "allocated_size": 1024, "active_size": 1024,
                "stream": 0, "segment_type": "large",
                "blocks": [
                    {"size": 1024, "state": "active_allocated",
                     "history": [{"addr": 4096, "real_size": 1000, "frames": FRAMES[:1]}, {"real_size": 7, "frames": []}]},
                    {"size": 512, "state": "inactive"},
                ],
            }
        ],
        "device_traces": [[{"action": "alloc", "addr": 4096, "size": 1000, "stream": 0}]],
    }  # fmt: skip
    found = snapshot_from_plain(old)
    first, second = found.segments[0].blocks
    assert (first.address, first.requested_size, first.frames) == (
        4096,
        1000,
        (Frame(**FRAMES[0]),),
    )
    assert (second.address, second.requested_size) == (5120, 512)
    assert found.segments[0].segment_pool_id == (0, 0)
    assert not found.segments[0].is_expandable
    assert found.traces[0][0].time_us is None
    assert found.traces[0][0].pool_id is None
    assert found.allocator_settings == {}
    assert found.problems == ()


def test_both_spellings_of_a_block_that_waits_for_a_stream_are_one_state():
    found = snapshot_from_plain(
        snapshot(
            [
                segment(
                    0,
                    [block(0, 512, "active_awaiting_free"), block(512, 512, "active_pending_free")],
                )
            ]
        )
    )
    assert {b.state for b in found.segments[0].blocks} == {"active_pending_free"}


def test_an_oom_event_has_what_the_driver_had_left_and_no_address():
    oom = {"action": "oom", "device_free": 77, "size": 5, "stream": 0}
    found = snapshot_from_plain(snapshot(events=[oom, event("alloc", 512, 5)]))
    first, second = found.traces[0]
    assert (first.address, first.device_free) == (None, 77)
    assert (second.address, second.device_free) == (512, None)


def test_unknown_actions_keys_and_states_are_kept():
    odd = snapshot(
        [segment(0, [block(0, 512, "resting")])],
        [event("user_defined", 512, 5, something="new")],
        host_traces=[[]], invented={"deep": [1, [2, {"x": "y"}]]},
    )  # fmt: skip
    found = snapshot_from_plain(odd)
    assert found.traces[0][0].action == "user_defined"
    assert found.segments[0].blocks[0].state == "resting"
    assert found.unknown == {"invented": {"deep": [1, [2, {"x": "y"}]]}}
    assert "1 blocks are in a state nobody knows and count as live" in found.problems


def test_pinned_host_memory_is_kept_apart():
    found = snapshot_from_plain(snapshot(host_segments=[segment(0, [block(0, 512)])]))
    assert (len(found.segments), len(found.host_segments)) == (0, 1)


def test_every_device_has_its_trace_even_an_empty_one():
    data = snapshot()
    data["device_traces"] = [[], [event("alloc", 0, 5)], []]
    found = snapshot_from_plain(data)
    assert [(trace.device, len(trace)) for trace in found.traces] == [(0, 0), (1, 1), (2, 0)]


@pytest.mark.parametrize(
    ("wrong", "sentence"),
    [
        (segment(0x1000, [block(0x1000, 512)], total_size=2048), "blocks of segment 0x1000 add up to 512 of 2048 bytes"),
        (segment(0x1000, [block(0x1000, 512), block(0x1400, 512)]), "blocks of segment 0x1000 leave a gap or overlap at 0x1400"),
        (segment(0x1000, [block(0x1000, 512)], active_size=7), "segment 0x1000 says 7 bytes are active, its blocks say 512"),
    ],
)  # fmt: skip
def test_contradictions_of_a_segment_are_said(wrong, sentence):
    assert snapshot_from_plain(snapshot([wrong])).problems == (sentence,)


def test_many_contradictions_are_counted_after_the_first_few():
    wrong = [segment(n << 20, [block(n << 20, 512)], active_size=7) for n in range(9)]
    problems = snapshot_from_plain(snapshot(wrong)).problems
    assert len(problems) == 6
    assert problems[-1] == "4 more segments contradict themselves"


def test_events_and_values_that_make_no_sense_are_counted():
    events = [
        event("alloc", "here", 5),
        event("alloc", 1 << 70, 5),
        {"size": 3},
        7,
        event("alloc", 512, 6),
    ]
    found = snapshot_from_plain(snapshot(events=events))
    assert [e.size for e in found.traces[0]] == [5, 5, 6]
    assert [e.address for e in found.traces[0]] == [0, 0, 512]
    assert found.problems == (
        "2 events of device 0 that name no action were left out",
        "2 values in trace events that are no 64-bit integers were replaced",
    )


def test_shared_frames_are_one_and_stacks_are_told_apart_by_order():
    events = [
        event("alloc", 0, 1, frames=FRAMES),
        event("alloc", 0, 1, frames=FRAMES[::-1]),
        event("alloc", 0, 1, frames=[dict(frame) for frame in FRAMES]),
        event("alloc", 0, 1),
    ]
    trace = snapshot_from_plain(snapshot(events=events)).traces[0]
    assert trace.stack.tolist() == [0, 1, 0, -1]
    assert len(trace.stacks.frames) == 3
    assert trace[1].frames == tuple(reversed(trace[0].frames))
    assert trace.stacks[0:2] == [trace[0].frames, trace[1].frames]
    with pytest.raises(IndexError):
        trace.stacks[2]
