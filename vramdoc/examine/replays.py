"""Trying a change on a recording or a bare snapshot: its own requests are replayed under the other config.

Nothing of the recording is executed. What a replay cannot know is said with each result.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from vramdoc.errors import UsageError, VramdocError
from vramdoc.facts import Source
from vramdoc.prescribe.verify import RunOutcome, Trial

if TYPE_CHECKING:
    from vramdoc.evidence.case import Case
    from vramdoc.record.recording import Manifest
    from vramdoc.replay.compare import ReplayResult
    from vramdoc.replay.replayable import DeviceFacts, Replayable


def replay_trial(case: Case) -> Trial | None:
    """A way to try configs on this case; None where there is no trace, or one that contradicts itself."""
    from vramdoc.replay.compare import confidence, replay
    from vramdoc.replay.replayable import fidelity

    try:
        recording = prepared(case)
    except VramdocError:
        return None
    if recording is None:
        return None
    how = fidelity(recording)
    current = case.snapshot.alloc_conf if case.snapshot is not None else ""

    def run(alloc_conf: str | None, _changes: Mapping[str, Any]) -> RunOutcome:
        return _outcome(replay(recording, alloc_conf or current, fidelity=how))

    before = run(current, {})
    return Trial(
        method="replay",
        source=Source.REPLAYED,
        run=run,
        can_change_workload=False,
        before=before,
        reached="the request that failed is now served (a replay ends there)",
        note=confidence(recording, how),
    )


def _outcome(result: ReplayResult) -> RunOutcome:
    if result.refused:
        raise UsageError(f"the config cannot be replayed: {result.refused}")
    return RunOutcome(
        exit="success" if result.oom is None else "oom",
        reserved_peak=result.reserved_peak,
        active_peak=result.active_peak,
    )


def prepared(case: Case) -> Replayable | None:
    """The case's trace, ready for replay; None where it has none.

    Raises:
        VramdocError: the trace cannot be replayed, with the reason.
    """
    from vramdoc.replay.replayable import replayable

    snapshot = case.snapshot or case.oom_snapshot
    if snapshot is None or not any(len(trace) for trace in snapshot.traces):
        return None
    manifest = case.manifest
    release = manifest.versions.get("torch") if manifest is not None else None
    return replayable(snapshot, release=release, facts=_facts_of(manifest))


def _facts_of(manifest: Manifest | None) -> DeviceFacts | None:
    """The recorded device: what others held is what was neither free nor reserved at a phase's end."""
    from vramdoc.replay.replayable import DeviceFacts

    if manifest is None or manifest.device is None:
        return None
    device = manifest.device
    held = [
        device.total_bytes - phase.driver_free_bytes - phase.reserved_bytes
        for phase in manifest.phases
        if phase.driver_free_bytes is not None and phase.reserved_bytes is not None
    ]
    assumed = (device.context_bytes or 0) + (device.foreign_bytes or 0)
    return DeviceFacts(
        total=device.total_bytes,
        in_use=max(held, default=assumed),
        source=f"device: {device.name}, {device.kind}",
    )


def device_facts(gpu: str) -> DeviceFacts:
    """Another device to ask about: its total, less the context that a process needs there.

    Raises:
        UsageError: an unknown GPU.
    """
    from vramdoc.replay.replayable import DeviceFacts
    from vramdoc.virtual_gpu.catalogue import find_gpu

    model = find_gpu(gpu)
    return DeviceFacts(
        total=model.total_bytes,
        in_use=model.context_bytes + model.cublas_handle_bytes,
        source=f"asked about: {model.name}",
    )
