"""Bytes that live on from step to step are found by line, whichever way the steps are told."""

import pytest

from tests.snapshot.plain import block, event, segment, snapshot
from vramdoc.evidence.callsites import sited_lifetimes
from vramdoc.evidence.growth import growth
from vramdoc.record.manifest import Phase
from vramdoc.snapshot.schema import snapshot_from_plain

KIB = 1 << 10
LEAK = {"filename": "/p/q/r/train.py", "line": 31, "name": "step"}
WORK = {"filename": "/p/q/r/train.py", "line": 40, "name": "step"}


def training(steps, *, leaked=3 * KIB, warm_up=50 * KIB):
    """Each step allocates, frees what it made and, unless ``leaked`` is 0, keeps one block."""
    events, kept, now = [], [], 1000
    address = 1 << 20

    def take(size, frame):
        nonlocal address, now
        address += 1 << 16
        now += 1
        events.append(event("alloc", address, size, frames=[frame], time_us=now))
        return address, size

    def give(item):
        nonlocal now
        for action in ("free_requested", "free_completed"):
            now += 1
            events.append(event(action, *item, time_us=now))

    ends = []
    for step in range(steps):
        if step == 0 and warm_up:
            kept.append(take(warm_up, WORK))
        items = [take(4 * KIB * (i + 1), WORK) for i in range(5)]
        if leaked:
            kept.append(take(leaked, LEAK))
        for item in items:
            give(item)
        now += 5
        ends.append(now)
        now += 5
    segments = [segment(a, [block(a, size)]) for a, size in kept]
    return snapshot(segments, events), ends


def measured(data, phases=()):
    taken = snapshot_from_plain(data)
    return growth(taken, sited_lifetimes(taken, 0), phases)


def phases(ends, name="step"):
    return [Phase(name=name, started_us=end - 8, ended_us=end) for end in ends]


def test_a_leak_is_found_by_the_programs_own_steps():
    data, ends = training(10)
    found = measured(data, phases(ends))
    assert found.period_source == "phase 'step'"
    assert found.steps_are_marked
    assert (found.steps, found.per_step_bytes, found.grown_bytes) == (8, 3 * KIB, 24 * KIB)
    (site,) = found.sites
    assert str(site.site) == "train.py:31 (step)"
    assert (site.per_step_bytes, site.grown_bytes, site.rising_steps, site.count) == (
        3 * KIB, 24 * KIB, 8, 10,
    )  # fmt: skip


def test_the_step_that_failed_does_not_count():
    data, ends = training(6)
    found = measured(data, [*phases(ends), Phase(name="step", started_us=ends[-1] - 3)])
    assert (found.steps, found.grown_bytes) == (4, 12 * KIB)


def test_torchs_own_annotations_tell_steps():
    data, ends = training(10)
    data["external_annotations"] = [
        {"name": name, "stage": stage, "device": 0, "time_us": end - (stage == "START")}
        for end in ends
        for name in ("Optimizer.step#AdamW.step", "forward", "layer")
        for stage in ("START", "END")
    ]
    found = measured(data)
    assert found.period_source == "annotation 'Optimizer.step#AdamW.step'"
    assert found.per_step_bytes == 3 * KIB


def test_without_marks_the_rhythm_of_the_trace_tells_steps_and_says_so():
    data, _ = training(12)
    found = measured(data)
    assert found.period_source == "a pattern that repeats every 16 events"
    assert not found.steps_are_marked
    assert found.per_step_bytes == 3 * KIB
    assert [str(site.site) for site in found.sites] == ["train.py:31 (step)"]


def test_steps_that_give_everything_back_do_not_grow_though_the_first_one_warms_up():
    data, ends = training(10, leaked=0)
    found = measured(data, phases(ends))
    assert (found.per_step_bytes, found.grown_bytes, found.sites) == (0, 0, ())


@pytest.mark.parametrize("steps", [0, 1, 3])
def test_too_few_steps_show_no_trend(steps):
    data, ends = training(steps)
    assert measured(data, phases(ends)) is None


def test_a_site_that_rises_only_now_and_then_is_not_steady():
    data, ends = training(20, leaked=0)
    extra = [
        event("alloc", 1 << 40 | n << 16, KIB, frames=[LEAK], time_us=ends[n] - 7) for n in (4, 9)
    ]
    data["device_traces"][0] = sorted(data["device_traces"][0] + extra, key=lambda e: e["time_us"])
    data["segments"] += [segment(e["addr"], [block(e["addr"], KIB)]) for e in extra]
    found = measured(data, phases(ends))
    assert found.grown_bytes == 2 * KIB
    assert found.sites == ()
