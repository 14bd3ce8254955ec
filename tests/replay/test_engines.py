"""The engines agree: the compiled simulator with the reference in every figure, both with torch's own allocator."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.replay.recordings import CONFIGS, RELEASES, STEPS, Recorder
from vramdoc.allocator import AllocatorConfig
from vramdoc.errors import UsageError, VramdocError
from vramdoc.replay.engines import Job, Outcome
from vramdoc.replay.native import NativeSimulator
from vramdoc.replay.replayable import DeviceFacts, Replayable, replayable
from vramdoc.replay.simulate import Simulator
from vramdoc.replay.virtual import VirtualGpu

MIB = 1 << 20
OTHER_CONFIGS = (*CONFIGS, "max_split_size_mb:40", "roundup_power2_divisions:[1:16,4:8,16:4,>:2]")


def same(one: Outcome, other: Outcome) -> bool:
    """Equal in everything, the timeline's columns included."""
    if (one.timeline is None) != (other.timeline is None):
        return False
    if one.timeline is not None and other.timeline is not None:
        for name in ("reserved", "active", "allocated"):
            if not np.array_equal(getattr(one.timeline, name), getattr(other.timeline, name)):
                return False
    return replace(one, timeline=None) == replace(other, timeline=None)


@given(
    steps=STEPS,
    recorded=st.sampled_from(CONFIGS),
    config=st.sampled_from(OTHER_CONFIGS),
    release=st.sampled_from(RELEASES),
    since=st.integers(0, 60),
    capacity=st.sampled_from((None, 1 << 30, 300 * MIB)),
    fraction=st.sampled_from((None, 0.3, 0.8, 1.0)),
)
def test_the_compiled_simulator_equals_the_reference(
    steps: list,
    recorded: str,
    config: str,
    release: str,
    since: int,
    capacity: int | None,
    fraction: float | None,
) -> None:
    recorder = Recorder(recorded, release).run(steps)
    trace = recorder.allocator.trace()
    while since < len(trace) and trace[since]["action"] != "free_requested":
        since += 1
    if since >= len(trace):
        since = 0
    if not trace:
        return
    recording = replayable(recorder.snapshot(since=since), release=release)
    job = recording.job(
        AllocatorConfig.parse(config, release=release),
        device=DeviceFacts(total=capacity, in_use=0 if capacity is None else 16 * MIB),
        fraction=fraction,
        timeline=True,
    )
    assert same(NativeSimulator().run(job), Simulator().run(job))


def recording_of(steps: list, config: str = "", release: str = "2.14") -> Replayable:
    return replayable(Recorder(config, release).run(steps).snapshot(), release=release)


def steps_of(seed: int, count: int) -> list[tuple[str, int, int]]:
    random = np.random.default_rng(seed)
    words = ["malloc"] * 6 + ["free"] * 5 + ["empty_cache"]
    sizes = np.concatenate((random.integers(1, MIB, count), random.integers(MIB, 40 * MIB, count)))
    return [
        (
            words[random.integers(len(words))],
            int(random.choice(sizes)),
            int(random.integers(1 << 16)),
        )
        for _ in range(count)
    ]


@pytest.mark.virtual_gpu
@pytest.mark.parametrize(
    ("text", "capacity", "fraction"),
    [
        ("expandable_segments:True", None, None),
        ("max_split_size_mb:32", 512 * MIB, None),
        ("garbage_collection_threshold:0.5", 1 << 30, 0.5),
    ],
)
def test_torchs_own_allocator_gives_the_same_figures(
    text: str, capacity: int | None, fraction: float | None
) -> None:
    try:
        real = VirtualGpu()
    except VramdocError as error:
        pytest.skip(f"no torch that the virtual GPU can serve: {error}")
    recording = recording_of(steps_of(3, 120), release=real.release)
    config = AllocatorConfig.parse(text, release=real.release)
    job = recording.job(config, device=DeviceFacts(total=capacity), fraction=fraction)
    simulated, measured = NativeSimulator().run(job), real.run(job)
    assert dict(measured.stats) == dict(simulated.stats)
    assert (measured.peak, measured.failure, measured.operations) == (
        simulated.peak,
        simulated.failure,
        simulated.operations,
    )


@pytest.mark.virtual_gpu
def test_torchs_own_allocator_refuses_what_it_cannot_start_from() -> None:
    try:
        real = VirtualGpu()
    except VramdocError as error:
        pytest.skip(f"no torch that the virtual GPU can serve: {error}")
    recorder = Recorder("", real.release).run(
        [("malloc", 5 * MIB, 0), ("malloc", 7 * MIB, 0), ("free", 0, 0)]
    )
    late = replayable(recorder.snapshot(since=3), release=real.release)
    with pytest.raises(UsageError, match="only replay from its start"):
        real.run(late.job(late.config))
    other = recording_of([("malloc", 5 * MIB, 0)], release="2.5")
    with pytest.raises(UsageError, match=r"the recording is of torch 2\.5"):
        real.run(other.job(other.config))


def test_a_private_pool_is_replayed_apart() -> None:
    recorder = Recorder("", "2.14")
    pool = recorder.allocator.create_pool()
    with recorder.allocator.use_pool(pool):
        recorder.malloc(3 * MIB, 0)
    recorder.malloc(3 * MIB, 0)
    recording = replayable(recorder.snapshot(), release="2.14")
    assert recording.requests.pools == ((0, 0), pool)
    outcome = NativeSimulator().run(recording.job(recording.config))
    assert outcome.stats["segment.all.current"] == 2
    assert outcome.stats["reserved_bytes_by_private_pools.0_1.all.current"] == 20 * MIB
    assert same(outcome, Simulator().run(recording.job(recording.config)))


def test_memory_held_by_others_is_out_of_reach() -> None:
    recording = recording_of([("malloc", 60 * MIB, 0), ("malloc", 60 * MIB, 0)])
    job: Job = recording.job(
        recording.config, device=DeviceFacts(total=200 * MIB, in_use=100 * MIB)
    )
    failure = NativeSimulator().run(job).failure
    assert failure is not None
    assert (failure.operation, failure.requested, failure.tried, failure.free) == (
        1,
        60 * MIB,
        60 * MIB,
        40 * MIB,
    )
    assert same(NativeSimulator().run(job), Simulator().run(job))
