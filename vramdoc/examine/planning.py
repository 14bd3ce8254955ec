"""``vramdoc capacity``: a model and a grid in, a plan and its statement out; or a statement held against the present.

How a border is found is ``capacity``'s business; this module reads the model and supplies the device.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from vramdoc.capacity.comparison import StatementCheck, check_statement
from vramdoc.capacity.plan import CapacityPlan, plan_capacity
from vramdoc.capacity.request import CapacityRequest, available_host_bytes, runner
from vramdoc.capacity.statement import (
    CapacityStatement,
    make_statement,
    read_statement,
    request_fields,
)
from vramdoc.checkpoint import read_checkpoint
from vramdoc.errors import ChildProblem, UsageError
from vramdoc.examine.device import choose_gpu
from vramdoc.workload.lengths import requests
from vramdoc.workload.spec import WorkloadSpec


@dataclass(frozen=True, slots=True, kw_only=True)
class Question:
    """What is asked about one model."""

    model: Path
    gpu: str | None
    fields: Mapping[str, Any]
    """Fields of CapacityRequest that the person set."""
    recordings: Path
    progress: Callable[[str], None]


@dataclass(frozen=True, slots=True, kw_only=True)
class Answer:
    """The plan with the statement that can be published."""

    plan: CapacityPlan
    statement: CapacityStatement


def plan(question: Question) -> Answer:
    """Find the border and verify it by running.

    Raises:
        VramdocError: the model, the device or the grid cannot be used.
    """
    checkpoint = read_checkpoint(question.model)
    gpu, _sentence = choose_gpu(question.gpu)
    request = CapacityRequest(target=str(question.model.absolute()), **question.fields)
    run = runner(
        gpu,
        question.recordings,
        foreign_bytes=request.foreign_bytes,
        progress=question.progress,
    )
    found = plan_capacity(request, checkpoint, run, host_bytes=available_host_bytes())
    return Answer(plan=found, statement=make_statement(found, checkpoint))


def recheck(question: Question, statement: Path) -> tuple[StatementCheck, Answer]:
    """Ask the statement's own question again, now, and compare. What ``question`` sets is what was changed on purpose.

    Raises:
        VramdocError: the statement cannot be read, or its question cannot be asked of this model.
    """
    old = read_statement(statement)
    if not old.supported:
        raise UsageError(f"{statement.name} supports nothing, so there is nothing to check")
    if {"contexts", "sessions"} & question.fields.keys():
        raise UsageError(
            "--check asks for the statement's own grid", "leave --context and --sessions out"
        )
    answer = plan(
        replace(
            question,
            gpu=question.gpu or old.gpu,
            fields={**request_fields(old), **question.fields, "alternatives": False},
        )
    )
    return check_statement(old, answer.statement), answer


def serve(question: Question, own: Mapping[str, Any]) -> dict[str, Any]:
    """Run the ``serve`` workload once: sessions arrive, wait, are turned away, cancelled, abandoned.

    The grid's options are one workload here: the largest context, at most the largest number of sessions. ``own`` holds the
    fields of a WorkloadSpec that only ``serve`` has.

    Raises:
        VramdocError: the model, the device or a table of lengths cannot be used.
        ChildProblem: the run ended before the first session arrived; the hint says how to look at it.
    """
    from vramdoc.examine.run import outcome_of
    from vramdoc.record.launch import run_workload

    asked = dict(question.fields)
    on_device = {name: asked.pop(name) for name in ("alloc_conf", "foreign_bytes") if name in asked}
    largest = {
        one: max(asked.pop(many))
        for one, many in (("context", "contexts"), ("sessions", "sessions"))
        if many in asked
    }
    spec = WorkloadSpec(
        target=str(question.model.absolute()), name="serve", **{**asked, **largest, **own}
    )
    requests(spec.lengths, spec.arrivals, spec.seed)  # refused before anything is started
    if min(spec.batch, spec.sessions) < 1:
        raise UsageError("batch and sessions must be positive")
    gpu, _sentence = choose_gpu(question.gpu)
    recording = run_workload(
        spec,
        gpu=gpu,
        root=question.recordings,
        progress=question.progress,
        **on_device,
    )
    manifest = recording.manifest
    found = [o.detail for o in manifest.observations if o.kind == "serve"]
    outcome = outcome_of(manifest)
    if not found:
        raise ChildProblem(
            f"serving ended with {outcome.exit}: {manifest.exit.message or 'no message'}",
            f"vramdoc diagnose {recording.folder}",
        )
    return {
        "schema_version": 1,
        "workload": spec.line(),
        "device": "" if manifest.device is None else manifest.device.name,
        "exit": outcome.exit,
        "reserved_peak": outcome.reserved_peak,
        "active_peak": outcome.active_peak,
        **found[0],
    }
