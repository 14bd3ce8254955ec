"""Usage and fragmentation measured from a snapshot equal the accounts that the allocator itself kept."""

import pytest

from tests.evidence.programs import played
from tests.snapshot.plain import block, event, segment, snapshot
from vramdoc.evidence.lifetimes import BEFORE, lifetimes
from vramdoc.evidence.measure import fragmentation, usage
from vramdoc.evidence.timeline import LEVELS, timeline
from vramdoc.snapshot.schema import snapshot_from_plain

MIB = 1 << 20
CONFS = ("", "expandable_segments:True", "max_split_size_mb:32", "garbage_collection_threshold:0.5")


@pytest.mark.parametrize("conf", CONFS)
@pytest.mark.parametrize("seed", range(12))
def test_levels_equal_the_allocators_own_statistics(seed, conf):
    allocator, taken = played(seed, conf=conf)
    stats = allocator.memory_stats()
    measured = usage(taken, 0)
    for level in LEVELS:
        assert getattr(measured.end, level) == stats[f"{level}_bytes.all.current"], level
    assert measured.peak.requested == stats["requested_bytes.all.peak"]
    assert measured.peak.reserved == stats["reserved_bytes.all.peak"]
    assert measured.device_alloc_calls == stats["num_device_alloc"]
    assert measured.device_free_calls == stats["num_device_free"]
    assert measured.complete
    assert not measured.caveat


@pytest.mark.parametrize("seed", range(12))
def test_peaks_of_freed_blocks_are_off_by_unsplit_remainders_at_most(seed):
    """A block keeps up to 1 MiB more than was asked when its rest is not split off; once freed, the trace does not tell."""
    allocator, taken = played(seed)
    peak = allocator.memory_stats()["allocated_bytes.all.peak"]
    measured = usage(taken, 0).peak.allocated
    assert peak - MIB * allocator.memory_stats()["allocation.all.peak"] <= measured <= peak


@pytest.mark.parametrize("conf", CONFS)
@pytest.mark.parametrize("seed", range(12))
def test_fragmentation_adds_up_and_returnable_is_what_empty_cache_returns(seed, conf):
    allocator, taken = played(seed, conf=conf)
    held = fragmentation(taken, 0)
    assert held.reserved_bytes == held.active_bytes + held.inactive_bytes
    assert held.active_bytes == held.allocated_bytes + held.pending_bytes
    assert held.external_bytes == held.inactive_bytes - held.returnable_bytes
    assert sum(group.inactive_bytes for group in held.groups) == held.inactive_bytes
    allocator.empty_cache()
    after = allocator.memory_stats()["reserved_bytes.all.current"]
    assert held.returnable_bytes == held.reserved_bytes - after


@pytest.mark.parametrize("seed", range(6))
def test_a_trace_that_began_late_gives_the_same_levels_for_its_events(seed):
    """A ring buffer keeps the last events only; what came before is undone from the segments."""
    _, taken = played(seed)
    whole = timeline(taken, 0)
    plain_events = [e for e in taken.traces[0] if e.action != "snapshot"]
    late = len(plain_events) // 2
    cut = snapshot_from_plain(
        {
            "segments": [as_plain(s) for s in taken.segments],
            "device_traces": [
                [
                    {"action": e.action, "addr": e.address, "size": e.size, "stream": e.stream}
                    for e in plain_events[late:]
                ]
            ],
        }
    )
    part = timeline(cut, 0)
    assert part.requested[1:].tolist() == whole.requested[late + 1 : late + len(part)].tolist()
    assert part.reserved[1:].tolist() == whole.reserved[late + 1 : late + len(part)].tolist()
    assert not usage(cut, 0).complete or whole.requested[late] == 0
    assert lifetimes(cut, 0).lost == 0


def as_plain(segment_info):
    return segment(
        segment_info.address,
        [block(b.address, b.size, b.state, b.requested_size) for b in segment_info.blocks],
        segment_type=segment_info.segment_type,
        stream=segment_info.stream,
    )


def test_lifetimes_pair_by_address_and_keep_what_is_older_or_live():
    taken = snapshot_from_plain(
        snapshot(
            [
                segment(
                    4096,
                    [block(4096, 1024, requested=1000), block(5120, 512, "active_pending_free"), block(5632, 512)],
                )
            ],
            [
                event("free_completed", 9216, 300),  # older than the trace
                event("alloc", 4096, 700),
                event("free_requested", 4096, 700),
                event("free_completed", 4096, 700),
                event("alloc", 4096, 1000),  # live at the end
                event("alloc", 5120, 512),
                event("free_requested", 5120, 512),  # waits for a stream
            ],
        )
    )  # fmt: skip
    rows = lifetimes(taken, 0)
    found = list(
        zip(
            rows.started.tolist(), rows.given_back.tolist(), rows.ended.tolist(), rows.address.tolist(),
            rows.requested.tolist(), rows.size.tolist(), strict=True,
        )
    )  # fmt: skip
    assert found == [
        (BEFORE, 7, 7, 5632, 512, 512),
        (BEFORE, 0, 0, 9216, 300, 512),
        (1, 2, 3, 4096, 700, 1024),
        (4, 7, 7, 4096, 1000, 1024),
        (5, 6, 7, 5120, 512, 512),
    ]
    assert rows.lost == 0


def test_an_allocation_that_no_segment_holds_is_counted_as_lost():
    taken = snapshot_from_plain(snapshot([], [event("alloc", 4096, 700)]))
    assert lifetimes(taken, 0).lost == 1


def test_blocks_are_rounded_as_the_recorded_settings_say():
    events = [event("alloc", 0, 5 * MIB + 1), event("free_completed", 0, 5 * MIB + 1)]
    taken = snapshot([], events)
    taken["allocator_settings"]["roundup_power2_divisions"] = {str(1 << i): 4 for i in range(16)}
    assert usage(snapshot_from_plain(taken), 0).peak.allocated == 6 * MIB
    taken = snapshot([], [dict(e) for e in events])
    assert usage(snapshot_from_plain(taken), 0).peak.allocated == 5 * MIB + 512


def test_downsampling_keeps_every_peak():
    _, taken = played(3, steps=2000, capacity=1 << 36)
    line = timeline(taken, 0)
    small = line.downsampled(90)
    assert len(small) < 120
    for level in LEVELS:
        assert small.peak(level) == line.peak(level)


def test_bytes_that_wait_for_a_stream_are_pending_and_not_allocated():
    taken = snapshot_from_plain(
        snapshot([segment(0, [block(0, MIB, "active_awaiting_free"), block(MIB, MIB, "inactive")])])
    )
    held = fragmentation(taken, 0)
    assert (held.pending_bytes, held.allocated_bytes, held.active_bytes) == (MIB, 0, MIB)


def test_private_pools_are_neither_returnable_nor_external():
    taken = snapshot_from_plain(
        snapshot(
            [
                segment(0, [block(0, 20 * MIB, "inactive")], segment_pool_id=(0, 1)),
                segment(1 << 30, [block(1 << 30, 20 * MIB, "inactive")]),
            ]
        )
    )
    held = fragmentation(taken, 0)
    assert held.private_pool_inactive_bytes == 20 * MIB
    assert held.returnable_bytes == 20 * MIB
    assert held.external_bytes == 0


def test_stranded_bytes_are_holes_below_the_smallest_request_of_their_stream():
    live = block(0, 15 * MIB)
    hole = block(15 * MIB, 5 * MIB, "inactive")
    small = snapshot([segment(0, [live, hole])], [event("alloc", 0, 15 * MIB)])
    assert fragmentation(snapshot_from_plain(small), 0).stranded_bytes == 5 * MIB
    usable = snapshot(
        [segment(0, [live, hole])],
        [
            event("alloc", 0, 15 * MIB),
            event("alloc", 1 << 30, 2 * MIB),
            event("free_completed", 1 << 30, 2 * MIB),
        ],
    )
    assert fragmentation(snapshot_from_plain(usable), 0).stranded_bytes == 0
    assert (
        fragmentation(snapshot_from_plain(snapshot([segment(0, [live])])), 0).stranded_bytes is None
    )


def test_a_trace_that_contradicts_itself_is_not_believed():
    """Blocks larger than every segment: a synthetic file, or a damaged one."""
    data = snapshot(
        [], [event("alloc", 1 << 20, 64 * MIB), event("free_completed", 1 << 20, 64 * MIB)]
    )
    assert "contradicts itself" in usage(snapshot_from_plain(data), 0).caveat
