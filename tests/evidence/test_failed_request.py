"""The failed request read from a snapshot has the figures that the allocator put into its message."""

import pytest

from tests.evidence.programs import GIB, MIB
from tests.snapshot.plain import block, event, segment, snapshot
from vramdoc.allocator import AllocatorConfig, CachingAllocator, Device, OutOfMemory
from vramdoc.evidence.failed_request import SEATS, anatomy_from_snapshot, merge_anatomy
from vramdoc.evidence.measure import fragmentation
from vramdoc.evidence.oom import OomAnatomy
from vramdoc.facts import Fact, Source
from vramdoc.snapshot.schema import snapshot_from_plain


def failed(conf, *requests, capacity=GIB):
    """Fill a device until a request fails; (what torch would say, the snapshot at that moment)."""
    allocator = CachingAllocator(
        AllocatorConfig.parse(conf, release="2.14"), Device(capacity=capacity), release="2.14"
    )
    addresses = {}

    def play():
        for number, request in enumerate(requests):
            if isinstance(request, tuple):
                allocator.free(addresses.pop(request[0]))
            else:
                addresses[number] = allocator.malloc(request)

    with pytest.raises(OutOfMemory) as caught:
        play()
    settings = {"expandable_segments": "True" in conf}
    return caught.value.figures, snapshot_from_plain(
        {**allocator.snapshot(), "allocator_settings": settings}
    )


PROGRAMS = {
    "plain shortage": ("", [300 * MIB] * 4),
    "splintered": ("", [*[100 * MIB] * 9, *((i,) for i in range(0, 9, 2)), *[30 * MIB] * 5, 200 * MIB, 300 * MIB]),
    "small request": ("", [*[200 * MIB] * 5, 23 * MIB, 700, 5 * MIB]),
    "expandable": ("expandable_segments:True", [*[90 * MIB] * 9, (3,), 400 * MIB]),
}  # fmt: skip


@pytest.mark.parametrize("name", PROGRAMS)
def test_figures_are_those_of_the_message(name):
    conf, requests = PROGRAMS[name]
    said, taken = failed(conf, *requests)
    read = anatomy_from_snapshot(taken)
    assert read.requested.value == said.tried
    assert read.free.value == said.free
    assert read.reserved.value == said.reserved
    assert read.allocated.value == said.allocated
    assert read.unallocated.value == said.unallocated
    assert read.private_pools.value == said.private_pools
    assert read.expandable_on is ("True" in conf)
    held = fragmentation(taken, 0)
    assert sum(read.extra[seat].value for seat in SEATS) == held.inactive_bytes
    assert read.largest_hole.value <= read.extra["inactive_usable"].value


def test_no_oom_event_is_no_failure():
    taken = snapshot_from_plain(snapshot([segment(0, [block(0, 512)])], [event("alloc", 0, 512)]))
    assert anatomy_from_snapshot(taken) is None


def oom(size, **changes):
    plain = event("oom", 0, size, **changes)
    del plain["addr"]
    return {**plain, "device_free": 7 * MIB}


def test_only_holes_of_the_same_pool_class_and_stream_are_usable():
    def hole(base, size, **changes):
        return segment(base, [block(base, 512), block(base + 512, size, "inactive")], **changes)

    taken = snapshot_from_plain(
        snapshot(
            [
                hole(1 << 30, 3 * MIB),
                hole(2 << 30, 4 * MIB, stream=9),
                hole(3 << 30, 5 * MIB, segment_pool_id=(0, 2)),
                hole(4 << 30, 1 * MIB, segment_type="small"),
            ],
            [oom(30 * MIB)],
        )
    )
    read = anatomy_from_snapshot(taken)
    assert read.largest_hole.value == 3 * MIB
    assert [read.extra[seat].value // MIB for seat in SEATS] == [3, 4, 1, 5]
    assert read.free.value == 7 * MIB


def test_a_request_of_a_private_pool_can_use_that_pools_holes():
    own = segment(0, [block(0, 512), block(512, 5 * MIB, "inactive")], segment_pool_id=(0, 2))
    taken = snapshot_from_plain(snapshot([own], [oom(30 * MIB, pool_id=(0, 2))]))
    assert anatomy_from_snapshot(taken).largest_hole.value == 5 * MIB


def test_a_layout_of_a_later_moment_is_not_taken_for_that_of_the_failure():
    later = [oom(30 * MIB), event("free_requested", 0, 512), event("free_completed", 0, 512)]
    read = anatomy_from_snapshot(
        snapshot_from_plain(snapshot([segment(0, [block(0, 512, "inactive")])], later))
    )
    assert read.requested.value == 30 * MIB
    assert read.largest_hole is None
    assert read.reserved is None


def test_the_snapshot_overrides_the_message_and_the_message_fills_the_rest():
    def fact(value, source=Source.READ):
        return Fact("x", value, "bytes", source)

    message = OomAnatomy(requested=fact(1), total=fact(24), process=fact(20), text="CUDA out of memory",
                         extra={"overflow": fact(0)})  # fmt: skip
    exact = OomAnatomy(
        requested=fact(2, Source.VIRTUAL_GPU), free=fact(3), device=0, extra={"active": fact(5)}
    )
    merged = merge_anatomy(message, exact)
    assert merged.requested.value == 2
    assert merged.free.value == 3
    assert merged.total.value == 24
    assert merged.text == "CUDA out of memory"
    assert set(merged.extra) == {"overflow", "active"}
    assert merge_anatomy(None, exact) is exact
    assert merge_anatomy(message, None) is message
    assert merge_anatomy(None, None) is None
