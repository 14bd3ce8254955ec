"""A line is said to pin a segment when its blocks alone keep the segment's free bytes from being returned."""

from tests.snapshot.plain import block, segment, snapshot
from vramdoc.evidence.callsites import sited_lifetimes
from vramdoc.evidence.pins import pins
from vramdoc.snapshot.schema import snapshot_from_plain

MIB = 1 << 20
A = {"filename": "/p/q/r/a.py", "line": 1, "name": "a"}
B = {"filename": "/p/q/r/b.py", "line": 2, "name": "b"}


def found(*segments):
    taken = snapshot_from_plain(snapshot(segments))
    return [
        (str(pin.site), pin.inactive_bytes, pin.live_bytes, pin.segments, pin.blocks)
        for pin in pins(taken, sited_lifetimes(taken, 0))
    ]


def held(base, *owners, **changes):
    blocks = [block(base + 512 * i, 512, frames=[owner]) for i, owner in enumerate(owners)]
    end = base + 512 * len(owners)
    return segment(base, [*blocks, block(end, 20 * MIB - 512 * len(owners), "inactive")], **changes)


def test_one_line_pins_what_only_it_holds():
    assert found(held(0, A), held(1 << 30, A, A), held(2 << 30, B), held(3 << 30, A, B)) == [
        ("a.py:1 (a)", 40 * MIB - 3 * 512, 3 * 512, 2, 3),
        ("b.py:2 (b)", 20 * MIB - 512, 512, 1, 1),
    ]


def test_full_free_expandable_and_private_segments_are_not_pinned():
    full = segment(0, [block(0, 512, frames=[A])])
    free = segment(1 << 30, [block(1 << 30, 512, "inactive")])
    assert (
        found(
            full,
            free,
            held(2 << 30, A, is_expandable=True),
            held(3 << 30, A, segment_pool_id=(0, 1)),
        )
        == []
    )
