"""The border of one context: how many sessions fit. Found by search, and both of its sides are run.

What is searched is computed where it can be: a calibration run of three sessions gives the pattern of requests, and the
exact simulator says for any number of sessions and any config how it would end. Where requests are not steady (a mixture
of experts on a real device), the search runs every step instead.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass, field

from vramdoc.allocator import AllocatorConfig
from vramdoc.capacity.budget import Budget, budget_of
from vramdoc.capacity.request import MOST_SESSIONS, CapacityRequest, Run, most_sessions
from vramdoc.capacity.session_stream import CALIBRATION_SESSIONS, SessionStream, session_stream
from vramdoc.capacity.simulate import Simulated, simulate
from vramdoc.checkpoint.kv import KvLayout
from vramdoc.crashlog import parse
from vramdoc.errors import ChildProblem, VramdocError
from vramdoc.record.recording import Exit, ExitKind, Manifest, Recording


def search(fits: Callable[[int], bool], guess: int, most: int) -> int:
    """The largest n in 0..most that fits, if fitting is monotone: gallop from ``guess``, then bisect."""
    low, high, step = 0, most + 1, 1  # low fits, high does not (or is not asked)
    at = min(max(guess, 1), most)
    while low < at < high:
        if fits(at):
            low, at = at, min(at + step, high - 1) if at + step < high else (at + high) // 2
        else:
            high, at = at, max(at - step, low + 1) if at - step > low else (low + at) // 2
        step *= 2
    return low


def _is_verdict(ending: Exit) -> bool:
    """Whether a run's end says if it fits. cuBLAS, too, fails where the allocator left it no room for a handle."""
    if ending.kind is ExitKind.CUBLAS:
        return re.search("ALLOC_FAILED|NOT_INITIALIZED", ending.message or "") is not None
    return ending.kind in {ExitKind.SUCCESS, ExitKind.OUT_OF_MEMORY}


def _failed_by(manifest: Manifest) -> int:
    """By how much the request that failed exceeded what was free: torch's message has both, to two decimals."""
    incidents = parse(manifest.exit.message or "").incidents
    readings = incidents[-1].readings if incidents else {}
    sizes = [readings[name].value for name in ("requested", "free") if name in readings]
    match sizes:
        case [int(requested), int(free)]:
            return requested - free
        case _:
            return 0


@dataclass(slots=True)
class Column:
    """One context under one strategy: its calibration, and everything that was run or simulated for it."""

    request: CapacityRequest
    layout: KvLayout
    context: int
    cache: str
    weight_bytes: int
    run: Run
    host_bytes: int | None
    """Host memory that offloaded caches may fill; None where that is not known."""
    runs: dict[tuple[int, str], Manifest] = field(default_factory=dict)
    """Every run, by (sessions, config)."""
    budget: Budget | None = None
    stream: SessionStream | None = None
    notes: list[str] = field(default_factory=list)
    _simulated: dict[tuple[int, str], Simulated | None] = field(default_factory=dict)

    @property
    def most(self) -> int:
        """Sessions beyond which nothing is run."""
        return most_sessions(self.request, self.layout, self.context, self.cache, self.host_bytes)

    def with_cache(self, cache: str) -> Column:
        """The same context under another strategy; nothing of it has been run."""
        return Column(
            self.request, self.layout, self.context, cache, self.weight_bytes, self.run, self.host_bytes
        )  # fmt: skip

    def calibrate(self) -> None:
        """Run three sessions. If they do not fit, the few that are left are run one by one.

        Raises:
            ChildProblem: the run ended for another reason than memory, so there is no answer.
        """
        if self.cache == "offloaded" and self.most < max(MOST_SESSIONS, *self.request.sessions):
            self.notes.append(
                f"offloaded caches fill host memory: at {self.context:,} tokens at most {self.most} sessions were run here"
            )
        recording = self._record(CALIBRATION_SESSIONS, self.request.alloc_conf)
        manifest = recording.manifest
        self.budget = budget_of(manifest, self.layout, self.context, self.request.batch)
        if manifest.exit.kind is not ExitKind.SUCCESS:
            return
        try:
            stream = session_stream(recording)
        except VramdocError as why:
            self.notes.append(f"at {self.context} tokens every step of the search was run: {why}")
            return
        if stream.steady:
            self.stream = stream
        else:
            self.notes.append(
                f"at {self.context} tokens the sessions did not ask for the same bytes, so every step of the search was run"
            )

    def _record(self, sessions: int, alloc_conf: str) -> Recording:
        recording = self.run(self.request.spec(self.context, sessions, self.cache), alloc_conf)
        ending = recording.manifest.exit
        if not _is_verdict(ending):
            raise ChildProblem(
                f"{sessions} sessions of {self.context:,} tokens ended with {ending.kind}, which says nothing about memory"
                f"{f': {ending.message.splitlines()[0]}' if ending.message else ''}",
                f"vramdoc diagnose {recording.folder}",
            )
        self.runs[sessions, alloc_conf] = recording.manifest
        return recording

    def runs_through(self, sessions: int, alloc_conf: str) -> bool:
        """Run it, once."""
        if (sessions, alloc_conf) not in self.runs:
            self._record(sessions, alloc_conf)
        return self.runs[sessions, alloc_conf].exit.kind is ExitKind.SUCCESS

    def simulated(self, sessions: int, alloc_conf: str) -> Simulated | None:
        """Simulate it, once; None where it cannot be: too few sessions, no steady requests, no rules for the config."""
        if self.stream is None or self.budget is None or sessions < CALIBRATION_SESSIONS:
            return None
        if (sessions, alloc_conf) not in self._simulated:
            manifest = self.runs[CALIBRATION_SESSIONS, self.request.alloc_conf]
            config = AllocatorConfig.parse(
                alloc_conf, release=manifest.versions["torch"].partition("+")[0]
            )
            self._simulated[sessions, alloc_conf] = simulate(
                self.stream,
                sessions,
                config=config,
                capacity=self.budget.total,
                in_use=self.budget.outside,
            )
        return self._simulated[sessions, alloc_conf]

    def short_by(self, sessions: int, alloc_conf: str) -> int:
        """Bytes that are missing: by the level of active bytes, or of the request that failed, whichever is more."""
        simulated = self.simulated(sessions, alloc_conf)
        missing = (
            self._estimated_shortage(sessions)
            if self.budget is None
            else self.budget.active_needed(sessions) - self.budget.available
        )
        ran = self.runs.get((sessions, alloc_conf))
        return max(
            1, missing, simulated.short_by if simulated else 0, _failed_by(ran) if ran else 0
        )

    def _estimated_shortage(self, sessions: int) -> int:
        """Weights and caches alone against the device, where not even two sessions could be read."""
        device = next(iter(self.runs.values())).device
        caches = sessions * self.layout.bytes_at(self.context, batch=self.request.batch)
        return (
            self.weight_bytes
            + caches
            - (device.total_bytes - (device.context_bytes or 0) if device else 0)
        )

    @property
    def loads(self) -> bool:
        """Whether the weights fit at all."""
        return any(
            phase.name == "prefill" for manifest in self.runs.values() for phase in manifest.phases
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class Border:
    """How many sessions of ``context`` tokens fit under ``alloc_conf`` with ``cache``."""

    context: int
    alloc_conf: str
    cache: str
    sessions: int
    """The most that ran through."""
    computed: int | None
    """What was computed before it was run; None where nothing could be."""
    open_ended: bool
    """The search ended at its limit: more may fit."""
    reserved_peak: int
    active_peak: int
    headroom: int
    """Device bytes left at the peak of the largest that ran."""
    short_by: int
    """What the next one misses; 0 where it was not asked."""


def find_border(column: Column) -> Border:
    """Search by computing, then run both sides until one fits and the next does not."""
    conf, most = column.request.alloc_conf, column.most
    computed = _computed_border(column, conf, most)
    if column.runs[CALIBRATION_SESSIONS, conf].exit.kind is not ExitKind.SUCCESS:
        most = min(most, CALIBRATION_SESSIONS - 1) if column.loads else 0
    sessions = _run_to_border(column, conf, computed, most)
    best = column.runs.get((sessions, conf))
    stats = best.statistics if best else {}
    reserved = stats.get("reserved_bytes.all.peak", 0)
    return Border(
        context=column.context, alloc_conf=conf, cache=column.cache, sessions=sessions, computed=computed,
        open_ended=column.loads and (sessions + 1, conf) not in column.runs, reserved_peak=reserved,
        active_peak=stats.get("active_bytes.all.peak", 0),
        headroom=column.budget.available - reserved if column.budget and best else 0,
        short_by=column.short_by(sessions + 1, conf) if (sessions + 1, conf) in column.runs or not column.loads else 0,
    )  # fmt: skip


def _computed_border(column: Column, conf: str, most: int) -> int | None:
    """The largest number that the simulator lets through; None where nothing can be simulated.

    A simulation that fails tells how many prompts were read before. Prompts do not depend on how many will follow, so
    no more than these can fit, and two or three simulations settle it.
    """
    if column.stream is None or column.budget is None:
        return None
    at = min(most, max(CALIBRATION_SESSIONS, column.budget.sessions_by_formula()))
    failed = most + 1
    while at >= CALIBRATION_SESSIONS:
        simulated = column.simulated(at, conf)
        if simulated is None:
            return None
        if simulated.fits:
            if at + 1 >= failed:
                return at
            at += 1
        else:
            at = min(simulated.prefilled, at - 1)
            failed = at + 1
    return CALIBRATION_SESSIONS  # that many were run


def _run_to_border(column: Column, conf: str, computed: int | None, most: int) -> int:
    if computed is None:
        guess = column.budget.sessions_by_formula() if column.budget else most
        return search(lambda n: column.runs_through(n, conf), guess, most)
    at = computed
    while at > 0 and not column.runs_through(at, conf):
        at -= 1
    while at < most and column.runs_through(at + 1, conf):
        at += 1
    return at
