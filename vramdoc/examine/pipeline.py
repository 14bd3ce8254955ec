"""The pipeline as one function: a target in, a Report out. Data goes one way through the stages, in their order.

It decides nothing about memory: which stage runs for which kind of target is all it knows.
"""

from __future__ import annotations

import io
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

from vramdoc.errors import UnreadableInput
from vramdoc.examine.request import DiagnoseRequest

if TYPE_CHECKING:
    from vramdoc.evidence.case import Case
    from vramdoc.prescribe.verify import Trial
    from vramdoc.record.recording import Recording
    from vramdoc.report.contents import Report


def examine(request: DiagnoseRequest) -> Report:
    """Answer ``request``.

    Raises:
        VramdocError: the target, the device or the options cannot be used.
    """
    kind = request.target.kind
    if kind == "crash-text":
        return _report(request, _case_of_text(request), trial=None)
    if kind == "snapshot":
        from vramdoc.evidence.build import case_from_snapshot

        case = case_from_snapshot(_path(request))
        return _report(request, case, trial=_replay_trial(case))
    if kind == "snapshots":
        from vramdoc.evidence.build import case_from_snapshots

        case = case_from_snapshots(request.target.paths)
        return _report(request, case, trial=_replay_trial(case))
    if kind == "recording":
        from vramdoc.evidence.build import case_from_recording
        from vramdoc.record.recording import open_recording

        case = case_from_recording(open_recording(_path(request)))
        return _report(request, case, trial=_replay_trial(case))
    return _examine_run(request)


def _examine_run(request: DiagnoseRequest) -> Report:
    """A model, or a program of the person's own: run it once, judge the recording, try fixes by rerun."""
    from vramdoc.evidence.build import case_from_recording
    from vramdoc.examine.run import NeverUsedGpu, command_runner, model_runner

    is_command = request.target.kind == "command"
    runner = command_runner(request) if is_command else model_runner(request)
    try:
        recording = runner.run(request.alloc_conf, {})
    except NeverUsedGpu as ended:
        if not ended.output:
            raise
        return _report_on_output(request, ended.output)
    case = replace(
        case_from_recording(recording), kind=request.target.kind, name=request.target.name
    )
    case = _with_sources(case, request)
    report = _report(request, case, trial=runner.trial(recording), recording=recording)
    return replace(report, notes=(*runner.notes, *report.notes)) if runner.notes else report


def _report_on_output(request: DiagnoseRequest, output: bytes) -> Report:
    """A command that failed before it used the GPU is judged by what it printed, as a crash text would be."""
    from vramdoc.evidence.build import case_from_crash_text

    case = case_from_crash_text(io.BytesIO(output), name=request.target.name)
    note = "The program failed before it used a GPU through PyTorch: this is judged from what it printed."
    report = _report(request, _with_sources(case, request), trial=None)
    return replace(report, notes=(note, *report.notes))


def _case_of_text(request: DiagnoseRequest) -> Case:
    from vramdoc.evidence.build import case_from_crash_text

    if request.target.path is None:
        if request.stdin is None:
            raise UnreadableInput("there is nothing on standard input", "pipe a crash text into -")
        return case_from_crash_text(request.stdin, name="-")
    return _with_sources(
        case_from_crash_text(request.target.path, name=request.target.name), request
    )


def _with_sources(case: Case, request: DiagnoseRequest) -> Case:
    """``case`` with what lint finds in the program's own script. It is read, not run."""
    if not request.target.sources:
        return case
    from vramdoc.lint import check_paths

    return replace(case, violations=check_paths(request.target.sources).violations)


def _replay_trial(case: Case) -> Trial | None:
    from vramdoc.examine.replays import replay_trial

    return replay_trial(case)


def _report(
    request: DiagnoseRequest, case: Case, *, trial: Trial | None, recording: Recording | None = None
) -> Report:
    from vramdoc.diagnose.engine import judge, primary
    from vramdoc.examine.wording import compose
    from vramdoc.prescribe.catalogue import candidates
    from vramdoc.prescribe.verify import try_out

    verdicts = judge(case)
    leads = primary(verdicts, case)
    prescriptions = try_out(
        candidates(verdicts, case),
        trial,
        limit=request.trials,
        primary=leads,
        progress=request.progress,
    )
    return compose(
        case,
        verdicts=verdicts,
        primary=leads,
        prescriptions=prescriptions,
        command=request.command,
        recording="" if recording is None else recording.folder.name,
    )


def _path(request: DiagnoseRequest) -> Path:
    path = request.target.path
    assert path is not None, "only a crash text comes from standard input"
    return path
