"""The same work under many allocator configs: recorded once, replayed under each, and the best ones rerun where asked.

It decides which recording, which configs and which device; what a config does is ``replay``'s to say.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from vramdoc.errors import UsageError
from vramdoc.examine.comparison import measured_case
from vramdoc.examine.replays import device_facts, prepared
from vramdoc.examine.request import DiagnoseRequest
from vramdoc.examine.target import Target

if TYPE_CHECKING:
    from vramdoc.evidence.case import Case
    from vramdoc.examine.run import Runner
    from vramdoc.replay.compare import ReplayResult, WhatIf
    from vramdoc.replay.replayable import Fidelity, Replayable
    from vramdoc.report.comparison import Comparison, ConfigRow

PHASES = "empty_cache at phase changes"


def _silent(_sentence: str) -> None:
    """Say nothing."""


@dataclass(frozen=True, slots=True, kw_only=True)
class CompareRequest:
    """One question."""

    target: Target | None
    """None takes the newest recording."""
    argv: tuple[str, ...] = ()
    alloc_confs: tuple[str, ...] = ()
    """Added to the default set."""
    search: bool = False
    gpu: str | None = None
    """For a model or command: the device to record on. For a recording: another device to ask about."""
    workload: Mapping[str, Any] = field(default_factory=dict)
    fraction: float | None = None
    empty_cache_every: int | None = None
    """A what-if: empty_cache before every N-th phase."""
    confirm: int = 0
    """How many of the best are rerun for real."""
    recordings: Path = Path(".vramdoc")
    command: str = ""
    progress: Callable[[str], None] = _silent


def compare_configs(request: CompareRequest) -> Comparison:
    """Answer ``request``.

    Raises:
        VramdocError: nothing to replay, or a config that the recorded release refuses (with its reason).
    """
    from vramdoc.allocator.config import AllocatorConfig
    from vramdoc.replay.compare import compare, judge, rank
    from vramdoc.replay.configs import default_configs
    from vramdoc.replay.replayable import fidelity

    case, runner = _case(request)
    recording = prepared(case)
    if recording is None:
        raise UsageError(
            f"{case.name} holds no allocator events, so there is nothing to replay",
            "record with `vramdoc record -- python train.py`",
        )
    for text in request.alloc_confs:
        AllocatorConfig.parse(text, release=recording.release)  # refused with torch's own reason
    how = fidelity(recording)
    if request.gpu is not None and runner is None:
        recording = replace(recording, device=device_facts(request.gpu))
    current = "" if case.snapshot is None else case.snapshot.alloc_conf
    system = "Linux" if case.manifest is None else case.manifest.platform.get("system", "Linux")
    texts = dict.fromkeys(
        [current, *default_configs(recording.release, system), *request.alloc_confs]
    )
    request.progress(f"replaying under {len(texts)} configs")
    with ThreadPoolExecutor(os.cpu_count()) as pool:
        results = compare(recording, list(texts), fidelity=how, executor=pool, system=system)
        if request.search:
            results = [*results, *_searched(recording, how, pool, system, known=texts)]
    whole = [*results, *_what_ifs(request, case, recording, how)]
    verdict = judge(results, current)
    rows = [_row(result, current=current, winner=verdict.winner) for result in rank(whole)]
    if request.confirm:
        rows = _confirmed(rows, runner, request)
    return _table(request, case, recording, how, rows, verdict.sentence)


def _case(request: CompareRequest) -> tuple[Case, Runner | None]:
    from vramdoc.evidence.build import case_from_recording
    from vramdoc.examine.run import command_runner, model_runner
    from vramdoc.record.recording import newest_recording

    target = request.target
    if target is None:
        newest = newest_recording(request.recordings)
        if newest is None:
            raise UsageError(
                f"there is no recording under {request.recordings}",
                "make one with `vramdoc record -- python train.py`, or give a target",
            )
        return case_from_recording(newest), None
    if target.kind in {"model", "model-folder", "command"}:
        question = DiagnoseRequest(
            target=target,
            argv=request.argv,
            gpu=request.gpu,
            workload=request.workload,
            recordings=request.recordings,
            progress=request.progress,
        )
        runner = (command_runner if target.kind == "command" else model_runner)(question)
        return replace(case_from_recording(runner.run("", {})), name=target.name), runner
    return measured_case(target), None


def _searched(
    recording: Replayable,
    how: Fidelity,
    pool: ThreadPoolExecutor,
    system: str,
    *,
    known: Mapping[str, None],
) -> list[ReplayResult]:
    """Of all combinations of the numeric options, those that none beats in both peak reserved and driver calls."""
    from vramdoc.replay.compare import compare, pareto_front
    from vramdoc.replay.configs import search_grid

    limited = recording.config.per_process_memory_fraction < 1
    grid = [t for t in search_grid(recording.release, system, limited=limited) if t not in known]
    results = compare(recording, grid, fidelity=how, executor=pool, system=system)
    return pareto_front(results)


def _what_ifs(
    request: CompareRequest, case: Case, recording: Replayable, how: Fidelity
) -> list[ReplayResult]:
    from vramdoc.replay.compare import replay

    current = "" if case.snapshot is None else case.snapshot.alloc_conf
    return [
        replay(recording, current, fidelity=how, what_if=what)
        for what in _questions(request, case, recording)
    ]


def _questions(request: CompareRequest, case: Case, recording: Replayable) -> list[WhatIf]:
    import numpy as np

    from vramdoc.replay.compare import WhatIf

    asked: list[WhatIf] = []
    if request.fraction is not None:
        asked.append(
            WhatIf(name=f"memory fraction {request.fraction:g}", fraction=request.fraction)
        )
    phases = case.manifest.phases if case.manifest is not None else ()
    starts = np.array([phase.started_us for phase in phases[1:]], np.int64)
    if len(starts):
        every = request.empty_cache_every
        chosen = starts if every is None else starts[::every]
        events = np.searchsorted(recording.trace.time_us, chosen)
        operations = np.searchsorted(np.maximum.accumulate(recording.requests.event), events)
        name = PHASES if every is None else f"empty_cache every {every} phases"
        emptied = recording.requests.with_empty_cache(
            operations[operations < len(recording.requests)]
        )
        asked.append(WhatIf(name=name, requests=emptied))
    return asked


def _row(result: ReplayResult, *, current: str, winner: ReplayResult | None) -> ConfigRow:
    from vramdoc.report.comparison import ConfigRow

    remarks = list(result.remarks)
    if result.refused:
        remarks.insert(0, result.refused)
    if result.oom is not None:
        remarks.insert(0, f"runs out of memory at event {result.oom.event}")
    return ConfigRow(
        config=result.config,
        reserved_peak=result.reserved_peak,
        active_peak=result.active_peak,
        oom=result.oom is not None,
        device_alloc=result.device_alloc,
        device_free=result.device_free,
        source=result.source,
        note="; ".join(remarks),
        external_fragmentation=result.external_fragmentation,
        internal_fragmentation=result.internal_fragmentation,
        headroom=result.headroom,
        retries=result.retries,
        is_current=result.config == current,
        is_winner=winner is not None and result.config == winner.config,
    )


def _confirmed(
    rows: Sequence[ConfigRow], runner: Runner | None, request: CompareRequest
) -> list[ConfigRow]:
    """Rerun the best rows for real, and put what happened beside what the replay said."""
    from vramdoc.examine.run import outcome_of

    if runner is None:
        raise UsageError(
            "--confirm needs something to run, and nothing in a recording is ever executed",
            "give the model, or the command after --",
        )
    left = request.confirm
    confirmed: list[ConfigRow] = []
    for row in rows:
        if left == 0 or row.reserved_peak is None or " + " in row.config or PHASES in row.config:
            confirmed.append(row)
            continue
        left -= 1
        request.progress(f"rerunning under {row.shown_config}")
        outcome = outcome_of(runner.run(row.config, {}).manifest)
        confirmed.append(
            replace(row, rerun_exit=outcome.exit, rerun_reserved_peak=outcome.reserved_peak)
        )
    return confirmed


def _table(
    request: CompareRequest,
    case: Case,
    recording: Replayable,
    how: Fidelity,
    rows: Sequence[ConfigRow],
    sentence: str,
) -> Comparison:
    from vramdoc.replay.compare import confidence
    from vramdoc.report.comparison import Comparison

    manifest = case.manifest
    other_device = recording.device.source if request.gpu is not None or manifest is None else ""
    notes = [
        confidence(recording, how),
        "backend:cudaMallocAsync is NVIDIA's allocator: it is not simulated; run it on a real GPU to compare",
        *filter(None, [recording.release_note, *recording.requests.notes, other_device]),
    ]
    return Comparison(
        rows=rows,
        target_name=case.name,
        sentence=sentence,
        workload=str(manifest.workload.get("line", "")) if manifest is not None else "",
        device=manifest.device.name if manifest is not None and manifest.device else "",
        command=request.command,
        notes=notes,
    )
