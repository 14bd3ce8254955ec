"""Replayable: a recorded trace made ready for replay, with what is known about its device, and how faithful a replay is.

Everything that is the same for every config is worked out here once. It does not know which configs are worth trying
(``compare``).
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

import numpy as np

from vramdoc.allocator.config import AllocatorConfig, ConfigError
from vramdoc.allocator.releases import RULES, nearest
from vramdoc.errors import UsageError
from vramdoc.replay.engines import Divergence, Engine, Job, Outcome
from vramdoc.replay.flushes import settle
from vramdoc.replay.from_trace import OOM, SEGMENT_ALLOC, SEGMENT_MAP, SEGMENT_UNMAP, requests_of
from vramdoc.replay.native import simulator
from vramdoc.replay.requests import Requests
from vramdoc.replay.start import StartState, start_state
from vramdoc.units import format_bytes

if TYPE_CHECKING:
    from vramdoc.snapshot.model import Snapshot, Trace


@dataclass(frozen=True, slots=True, kw_only=True)
class DeviceFacts:
    """What is known about the recorded device; bytes."""

    total: int | None = None
    """Total memory as CUDA reports it."""
    in_use: int = 0
    """Held by contexts, libraries and other processes: all that the allocator could never get."""
    source: str = ""
    """Where the figures come from, in words."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Fidelity:
    """A replay under the recorded config, held against the recorded events."""

    exact: bool
    """Every event equal, addresses included, from the start of the trace to its end."""
    events: int
    """Events in the trace."""
    divergence: Divergence | None = None
    """The first event that differs."""
    reason: str = ""
    """Why it may differ: what the recording leaves open there."""

    def sentence(self) -> str:
        """The statement for a report."""
        if self.exact:
            return f"exact: replayed under its own config, all {self.events} events come out as recorded"
        if self.divergence is None:
            return self.reason
        d = self.divergence
        return f"differs first at event {d.event}: recorded {d.expected}, replayed {d.actual}; {self.reason}"


@dataclass(frozen=True, slots=True, kw_only=True)
class Replayable:
    """One device's trace, ready to be replayed under any config."""

    requests: Requests
    start: StartState
    release: str
    """Minor release whose rules are used."""
    release_note: str
    """Empty where the recording names its release; else what was assumed."""
    config: AllocatorConfig
    """The recorded one."""
    device: DeviceFacts
    trace: Trace

    @property
    def from_the_start(self) -> bool:
        """Whether the trace begins with an empty allocator."""
        return not self.start.segments

    def job(
        self,
        config: AllocatorConfig,
        *,
        requests: Requests | None = None,
        device: DeviceFacts | None = None,
        fraction: float | None = None,
        timeline: bool = False,
    ) -> Job:
        """A replay under ``config``; other requests or another device are what-ifs."""
        device = device or self.device
        return Job(
            requests=requests or self.requests,
            start=self.start,
            config=config,
            capacity=device.total,
            in_use=device.in_use,
            fraction=fraction,
            timeline=timeline,
        )


def replayable(
    snapshot: Snapshot,
    *,
    device: int | None = None,
    release: str | None = None,
    facts: DeviceFacts | None = None,
) -> Replayable:
    """Prepare the trace of ``device``, or of the device with most events.

    Args:
        snapshot: with a trace.
        device: index of the device.
        release: torch release that recorded it. Where None, the newest whose rules replay the trace exactly; where it is not a
            known one, the nearest.
        facts: the device's memory, from the recording's manifest; else what an ``oom`` event tells.

    Raises:
        UsageError: there is no trace, or the recording ran under cudaMallocAsync.
        ConfigError: the recorded config string is one that the release would have refused.
        Contradiction: the trace contradicts itself or the segments.
    """
    traces = [t for t in snapshot.traces if len(t) and device in (None, t.device)]
    if not traces:
        raise UsageError(
            "the snapshot has no events" + ("" if device is None else f" of device {device}"),
            "record with torch.cuda.memory._record_memory_history(), or with `vramdoc record`",
        )
    trace = max(traces, key=len)
    requests = requests_of(snapshot, trace.device)
    if release is None:
        return _of_unnamed_release(snapshot, trace, requests, facts)
    rules = nearest(release)
    note = (
        ""
        if release.startswith(rules)
        else f"the rules of torch {rules} are used for {release}, whose own are not known"
    )
    return _prepare(snapshot, trace, requests, facts, rules, note)


def _of_unnamed_release(
    snapshot: Snapshot, trace: Trace, requests: Requests, facts: DeviceFacts | None
) -> Replayable:
    """Try one release of each tie-break, newest first: they differ in which of two equal blocks they choose."""
    first: Replayable | None = None
    for rules in _NEWEST_BY_TIE_BREAK:
        try:
            recording = _prepare(
                snapshot, trace, requests, facts, rules, _UNNAMED.format(rules, "are assumed")
            )
        except ConfigError:
            if rules == _NEWEST_BY_TIE_BREAK[-1] and first is None:
                raise
            continue
        first = first or recording
        if fidelity(recording).exact:
            return replace(recording, release_note=_UNNAMED.format(rules, "replay it exactly"))
    assert first is not None
    return first


_UNNAMED = "the recording does not name its torch release; the rules of {} {}"
_NEWEST_BY_TIE_BREAK = tuple(
    reversed({rules.tie_break: release for release, rules in RULES.items()}.values())
)


def _prepare(
    snapshot: Snapshot,
    trace: Trace,
    requests: Requests,
    facts: DeviceFacts | None,
    rules: str,
    note: str,
) -> Replayable:
    config = AllocatorConfig.parse(snapshot.alloc_conf, release=rules)
    if config.backend != "native":
        raise UsageError(
            f"the recording ran under backend:{config.backend}, which is NVIDIA's allocator: its trace cannot be replayed",
            "record without that option",
        )
    start = start_state(snapshot, trace, requests, config)
    recording = Replayable(
        requests=requests,
        start=start,
        release=rules,
        release_note=note,
        config=config,
        device=facts or _facts_of(trace, start),
        trace=trace,
    )
    engine = simulator()
    settled = settle(
        requests, trace, config, lambda tried: engine.run(_following(recording, tried))
    )
    return replace(recording, requests=settled)


def _following(recording: Replayable, requests: Requests) -> Job:
    return Job(
        requests=requests,
        start=recording.start,
        config=recording.config,
        capacity=recording.device.total,
        in_use=recording.device.in_use,
        follow=recording.trace,
    )


def _facts_of(trace: Trace, start: StartState) -> DeviceFacts:
    """What an ``oom`` event tells: what was reserved then and what was free are all that the process could have."""
    ooms = np.flatnonzero(trace.action == OOM)
    if not len(ooms):
        return DeviceFacts(source="the recording does not tell the size of the device")
    growth = np.isin(trace.action, (SEGMENT_ALLOC, SEGMENT_MAP))
    shrink = (trace.action > SEGMENT_ALLOC) & (trace.action <= SEGMENT_UNMAP) & ~growth
    first = int(ooms[0])
    reserved = start.reserved_bytes + int(trace.size[:first][growth[:first]].sum())
    reserved -= int(trace.size[:first][shrink[:first]].sum())
    free = int(trace.address[first])
    return DeviceFacts(
        total=reserved + free,
        source=f"event {first} ran out of memory with {format_bytes(reserved)} reserved and {format_bytes(free)} free: "
        "that is what this process could have",
    )


def fidelity(recording: Replayable, engine: Engine | None = None) -> Fidelity:
    """Replay under the recorded config and compare every event with the recorded one."""
    outcome = (engine or simulator()).run(_following(recording, recording.requests))
    events = len(recording.trace)
    if outcome.undefined:
        return Fidelity(exact=False, events=events, reason=outcome.undefined)
    if outcome.divergence is None:
        return Fidelity(exact=True, events=events)
    return Fidelity(
        exact=False,
        events=events,
        divergence=outcome.divergence,
        reason=_reason(recording, outcome),
    )


def _reason(recording: Replayable, outcome: Outcome) -> str:
    """What the recording leaves open that can explain a difference; the first that applies."""
    assert outcome.divergence is not None
    start = recording.start
    if recording.release_note:
        return recording.release_note
    if start.open_sizes:
        return f"the sizes of {start.open_sizes} blocks older than the trace are not known to the last MiB"
    if start.segments:
        return (
            "blocks of equal size are chosen by the age of their segments, and the order of those older than the trace is "
            "not recorded"
        )
    if len(recording.requests.pools) > 1:
        return "private pools can have options (no_split, use_on_oom) that no recording shows"
    return "settings may have been changed while the program ran, or memory taken that the trace does not show"
