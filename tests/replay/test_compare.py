"""Results under many configs, what they say about how sure they are, and when a difference does not matter."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor

import pytest

from tests.replay.recordings import Recorder
from vramdoc.allocator import AllocatorConfig
from vramdoc.facts import Source
from vramdoc.replay.compare import ReplayResult, WhatIf, compare, judge, pareto_front, rank, replay
from vramdoc.replay.configs import (
    default_configs,
    has_expandable_segments,
    is_accepted,
    search_grid,
)
from vramdoc.replay.replayable import DeviceFacts, Replayable, fidelity, replayable

MIB = 1 << 20
RELEASES = ("2.4", "2.6", "2.10", "2.11", "2.14", "2.15")


def growing_cache(steps: int = 12) -> Replayable:
    """A cache that is copied into a slightly larger buffer each step: every old buffer is too small for the next."""
    recorder = Recorder("", "2.14", capacity=4 << 30)
    recorder.malloc(40 * MIB, 0)
    for step in range(1, steps):
        recorder.malloc((40 + 4 * step) * MIB, 0)
        recorder.allocator.free(recorder.live.pop(0))
    return replayable(recorder.snapshot(), release="2.14", facts=DeviceFacts(total=4 << 30))


def result(config: str, peak: int | None, calls: int = 10, **more: object) -> ReplayResult:
    return ReplayResult(
        config=config,
        release="2.14",
        source=Source.REPLAYED,
        reserved_peak=peak,
        device_alloc=calls,
        device_free=0,
        **more,
    )  # type: ignore[arg-type]


def test_expandable_segments_win_where_a_cache_grows_and_the_reason_is_in_bytes() -> None:
    recording = growing_cache()
    results = compare(recording, default_configs("2.14"), fidelity=fidelity(recording))
    by_config = {r.config: r for r in results}
    plain, growing = by_config[""], by_config["expandable_segments:True"]
    assert plain.reserved_peak is not None
    assert growing.reserved_peak is not None
    assert growing.reserved_peak < plain.reserved_peak
    assert plain.confidence.startswith("exact: the trace begins with an empty allocator")
    assert plain.headroom == (4 << 30) - plain.reserved_peak
    verdict = judge(results, "")
    assert verdict.matters
    assert verdict.winner == rank(results)[0]
    assert "saves" in verdict.sentence


def test_threads_give_the_same_results_as_one_after_the_other() -> None:
    recording = growing_cache()
    faith = fidelity(recording)
    with ThreadPoolExecutor(2) as executor:
        side_by_side = compare(recording, search_grid("2.14"), fidelity=faith, executor=executor)
    assert side_by_side == compare(recording, search_grid("2.14"), fidelity=faith)


def test_a_refused_config_carries_torchs_reason_and_no_figures() -> None:
    recording = growing_cache()
    refused = replay(recording, "max_split_size_mb:10", fidelity=fidelity(recording))
    assert (
        refused.refused
        == "ValueError: CachingAllocator option max_split_size_mb too small, must be >= 20"
    )
    assert refused.reserved_peak is None
    assert (
        "aborts in import torch"
        in replay(recording, "max_split_size_mb", fidelity=fidelity(recording)).refused
    )
    nvidias = replay(recording, "backend:cudaMallocAsync", fidelity=fidelity(recording))
    assert "only a real GPU shows what it does" in nvidias.refused
    assert rank([nvidias, result("", 5)])[0].config == ""


def test_what_cannot_work_here_is_said() -> None:
    recording = growing_cache()
    faith = fidelity(recording)
    idle = replay(recording, "garbage_collection_threshold:0.8", fidelity=faith)
    assert "does nothing without a memory fraction" in idle.remarks[0]
    windows = replay(recording, "expandable_segments:True", fidelity=faith, system="Windows")
    assert windows.reserved_peak == replay(recording, "", fidelity=faith).reserved_peak
    assert "does nothing on this platform" in windows.remarks[0]


def test_what_ifs_beyond_config_strings() -> None:
    recording = growing_cache()
    faith = fidelity(recording)
    plain = replay(recording, "", fidelity=faith)
    often = recording.requests.with_empty_cache(range(2, len(recording.requests), 2))
    flushed = replay(
        recording,
        "",
        fidelity=faith,
        what_if=WhatIf(name="empty_cache every 2 requests", requests=often),
    )
    assert flushed.reserved_peak is not None
    assert plain.reserved_peak is not None
    assert flushed.reserved_peak < plain.reserved_peak
    assert flushed.driver_calls > plain.driver_calls
    assert flushed.config == "empty_cache every 2 requests"
    limited = replay(
        recording, "", fidelity=faith, what_if=WhatIf(name="fraction 0.02", fraction=0.02)
    )
    assert limited.oom is not None
    assert limited.oom.requested == 40 * MIB + 4 * MIB
    smaller = replay(
        recording,
        "",
        fidelity=faith,
        what_if=WhatIf(name="on 300 MiB", device=DeviceFacts(total=300 * MIB)),
    )
    assert smaller.completed
    assert smaller.retries


def test_a_late_recording_says_what_keeps_its_place() -> None:
    recorder = Recorder("", "2.14").run([("malloc", 30 * MIB, 0), ("malloc", 40 * MIB, 0)])
    since = len(recorder.allocator.trace())
    recorder.run([("malloc", 50 * MIB, 0)])
    recording = replayable(recorder.snapshot(since=since), release="2.14")
    late = replay(recording, "expandable_segments:True", fidelity=fidelity(recording))
    assert late.confidence.startswith(
        "70.00 MiB were alive before the trace began and keep their place"
    )


def test_small_differences_do_not_matter() -> None:
    verdict = judge([result("", 1000 * MIB), result("expandable_segments:True", 985 * MIB)], "")
    assert not verdict.matters
    assert verdict.winner is not None
    assert verdict.winner.config == ""
    assert verdict.sentence.startswith(
        "these differences do not matter: the best config would save 15.00 MiB"
    )


def test_completing_at_all_always_matters() -> None:
    recording = growing_cache()
    broken = replay(
        recording, "", fidelity=fidelity(recording), what_if=WhatIf(name="x", fraction=0.01)
    )
    failed = result("", 1000 * MIB, oom=broken.oom)
    verdict = judge([failed, result("expandable_segments:True", 1000 * MIB)], "")
    assert verdict.matters
    assert (
        "under expandable_segments:True the work completes; under the current config it does not"
        in verdict.sentence
    )
    assert judge([failed], "").winner is None


def test_the_pareto_front_holds_what_none_beats_in_both() -> None:
    front = pareto_front(
        [
            result("a", 10, 9),
            result("b", 8, 20),
            result("c", 8, 25),
            result("d", 30, 1),
            result("e", 30, 2),
        ]
    )
    assert [r.config for r in front] == ["b", "a", "d"]


@pytest.mark.parametrize("release", RELEASES)
def test_every_config_that_is_offered_is_accepted_by_the_release(release: str) -> None:
    offered = (*default_configs(release), *search_grid(release, limited=True))
    assert all(is_accepted(text, release) for text in offered)
    assert len(set(search_grid(release))) == len(search_grid(release))
    assert default_configs(release)[0] == ""


@pytest.mark.parametrize(
    ("release", "system", "rocm", "expected"),
    [
        ("2.14", "Linux", None, True),
        ("2.14", "Windows", None, False),
        ("2.11", "Linux", (7, 0), False),
        ("2.12", "Linux", (7, 0), True),
        ("2.12", "Linux", (6, 4), False),
        ("2.15", "Linux", (6, 4), True),
    ],
)
def test_where_expandable_segments_do_anything(
    release: str, system: str, rocm: tuple[int, int] | None, expected: bool
) -> None:
    assert has_expandable_segments(release, system, rocm=rocm) is expected
    offered = default_configs(release, system, rocm=rocm)
    assert any("expandable_segments" in text for text in offered) is expected


def test_configs_without_expandable_segments_leave_the_rest_as_it_was() -> None:
    config = AllocatorConfig.parse("expandable_segments:True,max_split_size_mb:64", release="2.14")
    effective = config.without_expandable_segments("not here")
    assert not effective.expandable_segments
    assert effective.max_split_size == 64 * MIB
    assert effective.warnings == ("not here",)
