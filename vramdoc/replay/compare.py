"""The same requests under many configs: bytes, driver calls, where it runs out of memory, and whether the choice matters."""

from __future__ import annotations

from collections.abc import Sequence
from concurrent.futures import Executor
from dataclasses import dataclass
from typing import TYPE_CHECKING

from vramdoc.allocator.config import AllocatorConfig, ConfigError
from vramdoc.facts import Source
from vramdoc.replay.configs import has_expandable_segments, ineffective
from vramdoc.replay.engines import Engine, Failure, Job, Outcome
from vramdoc.replay.native import simulator
from vramdoc.replay.replayable import DeviceFacts, Fidelity, Replayable
from vramdoc.units import MIB, format_bytes

if TYPE_CHECKING:
    from vramdoc.replay.requests import Requests

ONE_SEGMENT = 20 * MIB
"""kLargeBuffer: the grain in which the allocator takes memory for ordinary requests."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ReplayResult:
    """What became of the requests under one config. Bytes; None where the replay did not get there."""

    config: str
    release: str
    source: Source
    reserved_peak: int | None = None
    active_peak: int | None = None
    allocated_peak: int | None = None
    external_fragmentation: int | None = None
    """Inactive bytes when reserved memory peaked that ``empty_cache`` could not have returned."""
    internal_fragmentation: int | None = None
    """Bytes of live blocks beyond what was asked for, at the same moment."""
    oom: Failure | None = None
    """The request that ran out of memory."""
    avoided: int = 0
    """Requests that failed in the recording and are served here."""
    headroom: int | None = None
    """What the device could still have given at the peak; None where its size is not known."""
    device_alloc: int | None = None
    """cudaMalloc and mapping calls: the price in time."""
    device_free: int | None = None
    """cudaFree and unmapping calls; each waits for the device."""
    retries: int | None = None
    """Times everything cached was flushed because the device was full."""
    confidence: str = ""
    """How sure the figures are, in a sentence."""
    remarks: tuple[str, ...] = ()
    """What the config does not do here, and what had to be assumed."""
    refused: str = ""
    """PyTorch's own reason for refusing the config string, or why it could not be replayed."""

    @property
    def completed(self) -> bool:
        """Whether every request was served."""
        return not self.refused and self.oom is None

    @property
    def driver_calls(self) -> int:
        """Calls that cost time; 0 where nothing was replayed."""
        return (self.device_alloc or 0) + (self.device_free or 0)


@dataclass(frozen=True, slots=True, kw_only=True)
class WhatIf:
    """Something other than a config string to try; what is None stays as recorded."""

    name: str
    requests: Requests | None = None
    fraction: float | None = None
    device: DeviceFacts | None = None


def replay(
    recording: Replayable,
    text: str,
    *,
    fidelity: Fidelity,
    what_if: WhatIf | None = None,
    engine: Engine | None = None,
    system: str = "Linux",
    rocm: tuple[int, int] | None = None,
) -> ReplayResult:
    """Replay under one config string.

    Args:
        recording: what to replay.
        text: the config string.
        fidelity: of the replay under the recorded config; it decides how sure the figures are.
        what_if: further changes.
        engine: the fastest simulator by default.
        system: platform of the recording.
        rocm: version of ROCm of the recording, if it is one.
    """
    engine = engine or simulator()
    name = text if what_if is None else f"{text} + {what_if.name}" if text else what_if.name
    try:
        config = AllocatorConfig.parse(text, release=recording.release)
    except ConfigError as error:
        moment = "aborts in import torch: " if error.aborts else ""
        return _refused(recording, name, engine, f"{moment}{error.exception}: {error.reason}")
    if config.backend != "native":
        return _refused(
            recording,
            name,
            engine,
            f"{config.backend} is NVIDIA's allocator, not PyTorch's: only a real GPU shows what it does",
        )
    fraction = what_if.fraction if what_if else None
    expandable = has_expandable_segments(recording.release, system, rocm=rocm)
    remarks = ineffective(config, expandable=expandable, limited=fraction is not None)
    if not expandable:
        config = config.without_expandable_segments("not supported on this platform")
    job = recording.job(
        config,
        requests=what_if.requests if what_if else None,
        device=what_if.device if what_if else None,
        fraction=fraction,
    )
    outcome = engine.run(job)
    if outcome.undefined:
        return _refused(recording, name, engine, outcome.undefined)
    return _result(
        recording,
        name,
        engine,
        job,
        outcome,
        fidelity,
        (*remarks, *config.warnings, *outcome.notes),
    )


def _refused(recording: Replayable, name: str, engine: Engine, reason: str) -> ReplayResult:
    return ReplayResult(
        config=name, release=recording.release, source=engine.source, refused=reason
    )


def _result(
    recording: Replayable,
    name: str,
    engine: Engine,
    job: Job,
    outcome: Outcome,
    fidelity: Fidelity,
    remarks: tuple[str, ...],
) -> ReplayResult:
    stats = outcome.stats
    reserved = stats["reserved_bytes.all.peak"]
    return ReplayResult(
        config=name,
        release=recording.release,
        source=engine.source,
        reserved_peak=reserved,
        active_peak=stats["active_bytes.all.peak"],
        allocated_peak=stats["allocated_bytes.all.peak"],
        external_fragmentation=outcome.peak.external_fragmentation,
        internal_fragmentation=outcome.peak.internal_fragmentation,
        oom=outcome.failure,
        avoided=outcome.avoided,
        headroom=None if job.capacity is None else job.capacity - job.in_use - reserved,
        device_alloc=stats["num_device_alloc"],
        device_free=stats["num_device_free"],
        retries=stats["num_alloc_retries"],
        confidence=confidence(recording, fidelity),
        remarks=remarks,
    )


def confidence(recording: Replayable, fidelity: Fidelity) -> str:
    """How sure a replay under another config is."""
    if not fidelity.exact:
        return f"indicative: {fidelity.sentence()}"
    if recording.from_the_start:
        return "exact: the trace begins with an empty allocator and replays event for event"
    return (
        f"{format_bytes(recording.start.active_bytes)} were alive before the trace began and keep their place; all "
        "that follows is exact"
    )


def compare(
    recording: Replayable,
    texts: Sequence[str],
    *,
    fidelity: Fidelity,
    executor: Executor | None = None,
    engine: Engine | None = None,
    system: str = "Linux",
    rocm: tuple[int, int] | None = None,
) -> list[ReplayResult]:
    """Replay under each config, in the order given.

    ``executor`` may be any: the compiled simulator lets go of the interpreter, so threads run side by side; processes and Dask
    work as well, as all arguments can be pickled.
    """
    if executor is None:
        return [
            replay(recording, text, fidelity=fidelity, engine=engine, system=system, rocm=rocm)
            for text in texts
        ]
    futures = [
        executor.submit(
            replay, recording, text, fidelity=fidelity, engine=engine, system=system, rocm=rocm
        )
        for text in texts
    ]
    return [future.result() for future in futures]


def rank(results: Sequence[ReplayResult]) -> list[ReplayResult]:
    """Best first: what completes, then by peak reserved, then by driver calls, then the simpler string."""
    return sorted(
        results,
        key=lambda r: (
            bool(r.refused),
            r.oom is not None,
            r.reserved_peak if r.reserved_peak is not None else 0,
            r.driver_calls,
            len(r.config),
            r.config,
        ),
    )


def pareto_front(results: Sequence[ReplayResult]) -> list[ReplayResult]:
    """Results that none other beats in both peak reserved and driver calls, by peak; of equals, the simplest string."""
    front: list[ReplayResult] = []
    for result in rank([r for r in results if r.completed]):
        if not front or result.driver_calls < front[-1].driver_calls:
            front.append(result)
    return front


@dataclass(frozen=True, slots=True, kw_only=True)
class Comparison:
    """The judgement over a table of results."""

    winner: ReplayResult | None
    """None where nothing completes."""
    matters: bool
    """Whether changing the config is worth it."""
    sentence: str


def judge(results: Sequence[ReplayResult], current: str) -> Comparison:
    """The winner against the ``current`` config, or that the differences do not matter.

    A difference matters where it decides whether the work completes, or saves more than one segment (20 MiB, the grain in which
    the allocator takes memory) and more than one percent of the peak: less is noise between two runs of one program.
    """
    ranked = rank(results)
    best = next((result for result in ranked if result.completed), None)
    if best is None:
        return Comparison(
            winner=None, matters=True, sentence="under none of these configs does the work complete"
        )
    now = next((result for result in results if result.config == current), None)
    if now is None or not now.completed:
        why = "" if now is None else "; under the current config it does not"
        return Comparison(
            winner=best, matters=True, sentence=f"under {_name(best)} the work completes{why}"
        )
    assert now.reserved_peak is not None
    assert best.reserved_peak is not None
    saved = now.reserved_peak - best.reserved_peak
    if saved <= max(ONE_SEGMENT, now.reserved_peak // 100):
        return Comparison(
            winner=now,
            matters=False,
            sentence=f"these differences do not matter: the best config would save {format_bytes(max(saved, 0))} of "
            f"{format_bytes(now.reserved_peak)} reserved at peak",
        )
    return Comparison(
        winner=best,
        matters=True,
        sentence=f"{_name(best)} saves {format_bytes(saved)} of {format_bytes(now.reserved_peak)} reserved at peak",
    )


def _name(result: ReplayResult) -> str:
    return result.config or "the default config"
