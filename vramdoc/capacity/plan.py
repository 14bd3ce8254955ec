"""plan_capacity: the grid of contexts and sessions, its border verified by running, and what would move it.

Cells that were not run are computed and say so. It writes no statement (``statement``) and knows no terminal.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from vramdoc.capacity.border import Border, Column, find_border
from vramdoc.capacity.budget import Budget
from vramdoc.capacity.request import (
    ALTERNATIVE_CACHES,
    ALTERNATIVE_CONFIGS,
    CapacityRequest,
    Run,
    check_request,
)
from vramdoc.capacity.session_stream import CALIBRATION_SESSIONS
from vramdoc.checkpoint import Checkpoint
from vramdoc.errors import ChildProblem
from vramdoc.facts import Source
from vramdoc.record.recording import DeviceInfo, Manifest


@dataclass(frozen=True, slots=True, kw_only=True)
class Cell:
    """One cell of the grid."""

    context: int
    sessions: int
    fits: bool
    """Under the request's own config and strategy."""
    source: Source
    """MEASURED or VIRTUAL_GPU when it was run, REPLAYED when it was simulated, ESTIMATED where it only follows from the
    border."""
    short_by: int
    """Bytes that are missing, 0 if it fits."""
    with_config: str = ""
    """A config under which it fits."""
    with_cache: str = ""
    """A strategy with which it fits."""
    alternative_source: Source | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class CapacityPlan:
    """Everything that the report and the statement show."""

    request: CapacityRequest
    kv_bytes_per_token: int
    cells: tuple[Cell, ...]
    borders: tuple[Border, ...]
    budgets: tuple[Budget, ...]
    device: DeviceInfo
    versions: Mapping[str, str]
    weight_bytes: int
    run_by: str
    """The class that ran, as the workload says it."""
    ms_per_token: Mapping[int, float]
    """Context to milliseconds a decoded token, on a real device; empty on a virtual one, which measures memory only."""
    notes: tuple[str, ...]
    workload_line: str


def plan_capacity(
    request: CapacityRequest, checkpoint: Checkpoint, run: Run, *, host_bytes: int | None = None
) -> CapacityPlan:
    """Answer ``request`` by running as little as decides it: three runs a context, and one for each alternative that helps.

    ``host_bytes`` bounds what offloaded caches may take of this machine's memory.

    Raises:
        UsageError, UnreadableInput: the request cannot be answered; nothing was run.
    """
    layout = check_request(request, checkpoint, host_bytes)
    cells: list[Cell] = []
    borders: list[Border] = []
    columns: list[Column] = []
    for context in request.contexts:
        column = Column(
            request, layout, context, request.cache, checkpoint.weight_bytes, run, host_bytes
        )
        column.calibrate()
        border = find_border(column)
        helpers = _Alternatives(column)
        cells += [_cell(column, border, sessions, helpers) for sessions in request.sessions]
        borders.append(border)
        columns.append(column)
    manifest = next(iter(columns[0].runs.values()))
    assert manifest.device is not None  # a run that got as far as a recording has one
    return CapacityPlan(
        request=request,
        kv_bytes_per_token=layout.bytes_per_token * request.batch,
        cells=tuple(cells),
        borders=tuple(borders),
        budgets=tuple(column.budget for column in columns if column.budget is not None),
        device=manifest.device,
        versions={**manifest.versions, "vramdoc": manifest.tool_version},
        weight_bytes=checkpoint.weight_bytes,
        run_by=_run_by(manifest),
        ms_per_token={column.context: time for column in columns if (time := _ms_per_token(column)) is not None},
        notes=tuple(dict.fromkeys([*manifest.notes, *(note for column in columns for note in column.notes)])),
        workload_line=request.line(),
    )  # fmt: skip


def _cell(column: Column, border: Border, sessions: int, helpers: _Alternatives) -> Cell:
    conf = column.request.alloc_conf
    fits, source = (
        sessions <= border.sessions,
        Source.ESTIMATED,
    )  # follows from the border, which was run
    if (sessions, conf) in column.runs:
        source = _ran_on(column.runs[sessions, conf])
    elif (simulated := column.simulated(sessions, conf)) is not None:
        fits, source = simulated.fits, Source.REPLAYED
    if fits:
        return Cell(context=column.context, sessions=sessions, fits=True, source=source, short_by=0)
    config, cache, how = helpers.find(sessions) if column.request.alternatives else ("", "", None)
    return Cell(
        context=column.context, sessions=sessions, fits=False, source=source,
        short_by=column.short_by(sessions, conf), with_config=config, with_cache=cache, alternative_source=how,
    )  # fmt: skip


class _Alternatives:
    """What makes a cell fit that does not: first another config, then another strategy. What is named was run."""

    def __init__(self, column: Column) -> None:
        self._column = column
        self._others: dict[str, Column] = {}
        own = column.request.alloc_conf
        self._ways = [
            *((config, "") for config in ALTERNATIVE_CONFIGS if config != own),
            *(("", cache) for cache in ALTERNATIVE_CACHES if cache != column.cache),
        ]

    def find(self, sessions: int) -> tuple[str, str, Source | None]:
        """(config, strategy, where from); empty and None where nothing helps."""
        if not self._column.loads:
            return "", "", None  # no config and no cache makes weights smaller
        for config, cache in tuple(self._ways):
            conf = config or self._column.request.alloc_conf
            try:
                column = self._other(cache) if cache else self._column
                if self._helps(column, sessions, conf):
                    return config, cache, _ran_on(column.runs[sessions, conf])
            except ChildProblem as why:  # not a way on this machine; the column's own answer stands
                self._ways.remove((config, cache))
                self._column.notes.append(f"{config or cache} was left out: {why.message}")
        return "", "", None

    def _helps(self, column: Column, sessions: int, config: str) -> bool:
        """Compute first, if possible; then run what should fit."""
        if sessions > column.most:
            self._column.notes.append(
                f"{column.cache} was left out: this machine's memory cannot hold {sessions} caches of {column.context:,} tokens"
            )
            return False
        simulated = column.simulated(sessions, config)
        if simulated is not None and not simulated.fits:
            return False
        if column.budget and column.budget.active_needed(sessions) > column.budget.available:
            return False
        return column.runs_through(sessions, config)

    def _other(self, cache: str) -> Column:
        if cache not in self._others:
            other = self._others[cache] = self._column.with_cache(cache)
            if other.most >= CALIBRATION_SESSIONS:
                other.calibrate()
        return self._others[cache]


def _run_by(manifest: Manifest) -> str:
    return next((str(o.detail["run_by"]) for o in manifest.observations if o.kind == "model"), "")


def _ran_on(manifest: Manifest) -> Source:
    real = manifest.device is not None and manifest.device.kind == "real"
    return Source.MEASURED if real else Source.VIRTUAL_GPU


def _ms_per_token(column: Column) -> float | None:
    """Mean time of the decode phases of the largest run that succeeded, on a real device."""
    done = [
        m
        for m in column.runs.values()
        if _ran_on(m) is Source.MEASURED and str(m.exit.kind) == "success"
    ]
    if not done:
        return None
    steps = [p for p in done[-1].phases if p.name == "decode" and p.ended_us]
    return (
        sum((p.ended_us or 0) - p.started_us for p in steps) / len(steps) / 1000 if steps else None
    )
