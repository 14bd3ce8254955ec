"""Two cases side by side: circumstances first, then bytes by level, line, phase and segment."""

import pytest

from tests.snapshot.plain import block, event, segment, snapshot
from vramdoc.evidence.build import measured
from vramdoc.evidence.case import Case
from vramdoc.evidence.diff import compare
from vramdoc.record.manifest import DeviceInfo, Exit, ExitKind, Manifest, Phase
from vramdoc.snapshot.schema import snapshot_from_plain

MIB = 1 << 20


def frame(line, function="step", file="train.py"):
    return {"filename": f"/home/jane/project/{file}", "line": line, "name": function}


def case(name, *held, conf="", manifest=None, segment_mib=20):
    """A case in which each of ``held`` (frame, MiB) is live, in a segment of its own."""
    segments, events = [], []
    for number, (where, size) in enumerate(held):
        base = number << 32
        rest = max(segment_mib - size, 0) * MIB
        blocks = [block(base, size * MIB, frames=[where])]
        blocks += [block(base + size * MIB, rest, "inactive")] if rest else []
        segments.append(segment(base, blocks))
        events.append(event("segment_alloc", base, size * MIB + rest))
        events.append(event("alloc", base, size * MIB, frames=[where]))
    taken = snapshot(segments, events)
    taken["allocator_settings"] = {"PYTORCH_CUDA_ALLOC_CONF": conf, "max_split_size": -1}
    return measured(
        Case(kind="snapshot", name=name, snapshot=snapshot_from_plain(taken), manifest=manifest)
    )


def manifest(torch="2.14.1", peak=5):
    return Manifest(
        created="2026-12-01T00:00:00Z", tool_version="0", versions={"torch": torch, "python": "3.11"},
        platform={"system": "Linux"}, alloc_conf="", exit=Exit(kind=ExitKind.SUCCESS), workload={"line": "--workload chat"},
        device=DeviceInfo(kind="virtual", name="NVIDIA L4", key="l4", total_bytes=24 << 30, compute_capability="8.9", multiprocessors=58),
        phases=[Phase(name="load", started_us=0, active_peak_bytes=1), Phase(name="decode", started_us=1, active_peak_bytes=peak),
                Phase(name="decode", started_us=2, active_peak_bytes=2)],
    )  # fmt: skip


def test_the_largest_change_by_line_comes_first_and_equal_lines_are_left_out():
    a = case("a", (frame(1), 4), (frame(2), 8), (frame(3), 2))
    b = case("b", (frame(1), 4), (frame(2), 18), (frame(4, "eval"), 1))
    assert [
        (c.name, c.before // MIB, c.after // MIB, c.change // MIB) for c in compare(a, b).sites
    ] == [
        ("train.py:2 (step)", 8, 18, 10),
        ("train.py:3 (step)", 2, 0, -2),
        ("train.py:4 (eval)", 0, 1, 1),
    ]


def test_a_line_that_only_moved_is_one_line():
    a = case("a", (frame(10), 4), (frame(1, "main"), 2))
    b = case("b", (frame(14), 6), (frame(1, "main"), 2))
    assert [(c.name, c.change // MIB) for c in compare(a, b).sites] == [
        ("train.py:10 (step) -> line 14", 2)
    ]


def test_circumstances_that_differ_are_named():
    a = case("a", conf="", manifest=manifest(torch="2.6.0"))
    b = case("b", conf="expandable_segments:True", manifest=manifest())
    found = {d.name: (d.before, d.after) for d in compare(a, b).circumstances}
    assert found == {
        "torch": ("2.6.0", "2.14.1")
    }  # the manifest's config counts where there is a manifest
    bare = compare(case("a"), case("b", conf="expandable_segments:True")).circumstances
    assert [(d.name, d.before, d.after) for d in bare] == [
        ("PYTORCH_CUDA_ALLOC_CONF", "", "expandable_segments:True")
    ]


def test_phases_are_compared_by_their_peaks():
    found = compare(case("a", manifest=manifest(peak=5)), case("b", manifest=manifest(peak=9)))
    assert [(c.name, c.before, c.after, c.before_count) for c in found.phases] == [
        ("decode", 5, 9, 2)
    ]


def test_segments_are_compared_by_what_they_are():
    found = compare(case("a", (frame(1), 4)), case("b", (frame(1), 4), (frame(1), 4)))
    assert [(c.name, c.before_count, c.after_count, c.change // MIB) for c in found.segments] == [
        ("large, stream 0, 20.00 MiB each", 1, 2, 20)
    ]


def test_a_case_equals_itself():
    same = case("a", (frame(1), 4), manifest=manifest())
    found = compare(same, same)
    assert (found.circumstances, found.sites, found.phases, found.segments) == ((), (), (), ())
    assert {c.change for c in found.levels} == {0}


def test_without_a_snapshot_what_is_missing_is_said():
    found = compare(case("a", (frame(1), 4)), Case(kind="recording", name="b", manifest=manifest()))
    assert found.sites == ()
    assert any(
        "need an allocator snapshot of both; b has none" in reason for reason in found.missing
    )


@pytest.mark.corpus
def test_public_snapshots_compare(public_snapshots):
    from vramdoc.evidence.build import case_from_snapshot

    bf16, fp32 = (
        case_from_snapshot(public_snapshots / f"cs336-silmont-fwd-{kind}.pickle")
        for kind in ("bf16", "fp32")
    )
    found = compare(bf16, fp32)
    change = {c.name: c.change for c in found.levels}
    assert change["active_peak"] == sum(c.change for c in found.sites)
