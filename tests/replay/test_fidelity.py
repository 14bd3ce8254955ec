"""A replay under the recorded config makes the recorded events, whether recording began early or late."""

from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.replay.recordings import CONFIGS, RELEASES, STEPS, Recorder
from vramdoc.errors import UsageError
from vramdoc.replay.native import NativeSimulator, simulator
from vramdoc.replay.replayable import fidelity, replayable
from vramdoc.replay.simulate import Simulator
from vramdoc.snapshot.reader import read_snapshot


@given(steps=STEPS, config=st.sampled_from(CONFIGS), release=st.sampled_from(RELEASES))
def test_a_recording_from_the_start_replays_exactly(steps: list, config: str, release: str) -> None:
    recorder = Recorder(config, release).run(steps)
    if not recorder.allocator.trace():
        return
    recording = replayable(recorder.snapshot(), release=release)
    assert recording.from_the_start
    outcome = fidelity(recording)
    assert outcome.exact, outcome.sentence()
    assert outcome == fidelity(recording, Simulator())


@given(
    steps=STEPS,
    config=st.sampled_from(CONFIGS),
    release=st.sampled_from(RELEASES),
    cut=st.integers(0, 10_000),
)
def test_a_late_recording_replays_exactly_or_says_what_it_leaves_open(
    steps: list, config: str, release: str, cut: int
) -> None:
    recorder = Recorder(config, release).run(steps)
    events = len(recorder.allocator.trace())
    if events < 2:
        return
    recording = replayable(
        recorder.snapshot(since=_between_calls(recorder, cut % (events - 1))), release=release
    )
    outcome = fidelity(recording)
    assert outcome == fidelity(recording, Simulator())
    assert outcome.exact or outcome.reason


def _between_calls(recorder: Recorder, cut: int) -> int:
    """The next event that begins a call, so that no call is cut in two."""
    trace = recorder.allocator.trace()
    while cut < len(trace) - 1 and trace[cut]["action"] != "free_requested":
        cut += 1
    return cut


@given(steps=STEPS, config=st.sampled_from(CONFIGS), release=st.sampled_from(RELEASES), more=STEPS)
def test_the_start_of_a_late_recording_is_the_layout_that_was_there(
    steps: list, config: str, release: str, more: list
) -> None:
    recorder = Recorder(config, release).run(steps)
    before, since = recorder.allocator.segments(), len(recorder.allocator.trace())
    recorder.run(more)
    if len(recorder.allocator.trace()) == since:
        return
    recording = replayable(recorder.snapshot(since=since), release=release)
    rebuilt = {s["address"]: s for s in recording.start.segments}
    assert {s["address"]: s["total_size"] for s in before} == {
        a: s["total_size"] for a, s in rebuilt.items()
    }
    unlike = 0
    for segment in before:
        mine = [b for b in rebuilt[segment["address"]]["blocks"] if b["state"] != "inactive"]
        real = [b for b in segment["blocks"] if b["state"] != "inactive"]
        assert [(b["address"], b["requested_size"], b["state"]) for b in mine] == [
            (b["address"], b["requested_size"], b["state"]) for b in real
        ]
        unlike += sum(a["size"] != b["size"] for a, b in zip(mine, real, strict=True))
    assert unlike <= recording.start.open_sizes


@pytest.mark.corpus
@pytest.mark.parametrize(
    ("name", "release", "from_the_start"),
    [
        ("cs336-silmont-mem", "2.6", True),
        ("cs336-niu-fwd-200", "2.6", True),
        ("cs336-silmont-fwd-bf16", "2.6", False),
        ("cs336-silmont-fwd-fp32", "2.6", False),
        ("cs336-wedson-infer-1024", "2.11", False),
        ("cs336-kk-fwd-512-mixed", "2.6", False),
        ("eor-nn", None, False),
        ("llm-inference-1.3b", None, False),
    ],
)
def test_snapshots_of_real_gpus_replay_exactly(
    corpus: Path, name: str, release: str | None, from_the_start: bool
) -> None:
    recording = replayable(read_snapshot(corpus / "snapshots" / f"{name}.pickle"), release=release)
    outcome = fidelity(recording)
    assert outcome.exact, outcome.sentence()
    assert recording.from_the_start is from_the_start
    assert outcome == fidelity(recording, Simulator())


@pytest.mark.corpus
@pytest.mark.parametrize("name", ["voxelflex", "thesis-expandable"])
def test_a_snapshot_without_events_says_so(corpus: Path, name: str) -> None:
    with pytest.raises(UsageError, match="no events"):
        replayable(read_snapshot(corpus / "snapshots" / f"{name}.pickle"))


def test_the_first_difference_is_named_with_both_events() -> None:
    recorder = Recorder("", "2.14")
    recorder.run([("malloc", 3 << 20, 0), ("malloc", 4 << 20, 0), ("malloc", 5 << 20, 0)])
    recording = replayable(recorder.snapshot(), release="2.14")
    # As if the settings had been changed while the program ran.
    trace = recording.trace
    trace.address[2] += 512
    outcome = fidelity(recording)
    assert not outcome.exact
    assert outcome.divergence is not None
    assert outcome.divergence.event == 2
    assert "recorded alloc" in outcome.sentence()
    assert "settings may have been changed" in outcome.sentence()
    assert outcome == fidelity(recording, Simulator())


def test_this_machine_has_the_compiled_simulator() -> None:
    assert isinstance(simulator(), NativeSimulator)
