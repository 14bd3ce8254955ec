"""Recorder: keeps what one process does in its recording, from the first use of the GPU to the end.

It is the ``Journal`` that a workload talks to, and what the guards and the marks of a recorded script report to. It never
stops the program: where the disk refuses, it says so once (``problem``) and keeps quiet from then on.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, nullcontext
from dataclasses import dataclass, field, replace
from pathlib import Path
from types import ModuleType
from typing import Any

import torch

from vramdoc.errors import StorageProblem
from vramdoc.record.holders import Survey
from vramdoc.record.inside.annotations import phases_of
from vramdoc.record.inside.history import (
    no_collection,
    on_out_of_memory,
    start_history,
    write_snapshot,
)
from vramdoc.record.inside.levels import (
    PeakLedger,
    PhasePeaks,
    device_in_use,
    driver_free,
    memory_statistics,
)
from vramdoc.record.inside.surroundings import versions
from vramdoc.record.manifest import DeviceInfo, Exit, ExitKind, Manifest, Observation, Phase
from vramdoc.record.recording import (
    HOLDERS,
    JOURNAL,
    OOM_HOLDERS,
    OOM_SNAPSHOT,
    SNAPSHOT,
    journal_entries,
    journal_line,
    with_journal,
    write_manifest,
    write_survey,
)
from vramdoc.record.storage import append_line

MOST_ENTRIES = 200_000
"""Phases, observations and notes kept; at about 300 bytes each that is 60 MB of manifest."""

OOM_SNAPSHOT_SHARE = 0.05
"""A program that catches out-of-memory errors by the thousand spends at most this share of its time on their snapshots."""

WORTH_A_LOOK = 0.01
"""Share of the device that a program must still hold at its end for its holders to be looked for, which takes half a second."""

SNAPSHOT_S_PER_EVENT = 5e-6
"""CPU time of torch 2.14's snapshot and its pickle, for an event with its stack; measured on a busy server core."""


@dataclass(slots=True)
class Recorder:
    """One process's recording, being written."""

    folder: Path
    manifest: Manifest
    owns_peaks: bool = False
    """Whether peaks may be reset phase by phase: in vramdoc's own workloads, never in somebody's program."""
    looks_for_holders: bool = False
    """Whether what holds memory is surveyed: in somebody's program, not in vramdoc's own workloads, which hold what they say."""
    say: Callable[[StorageProblem], None] = lambda _problem: None
    """Told once when the recording can no longer be written."""
    on_phase: Callable[[str], None] = lambda _name: None
    on_progress: Callable[[int, int], None] = lambda _done, _total: None
    clock_us: Callable[[], int] = lambda: time.time_ns() // 1000
    problem: StorageProblem | None = None
    _entries: int = 0
    _mark: Phase | None = None
    _detach: Callable[[], None] = lambda: None
    _peaks: PeakLedger | None = None
    _oom_survey: Survey | None = None
    _surveyor: ModuleType | None = None
    _started: float = field(default_factory=time.monotonic)
    _snapshot_s: float = 0.0
    _finished: bool = False
    _max_entries: int = 0
    _lock: threading.RLock = field(default_factory=threading.RLock)

    def begin(self) -> None:
        """Open the recording. What guards see and what is marked is kept from here on."""
        self.manifest = replace(self.manifest, versions=self._versions())
        self._attempt(lambda: write_manifest(self.folder, self.manifest))

    def begin_history(
        self, device: DeviceInfo, *, max_entries: int | None, stacks: str = "python"
    ) -> None:
        """Record the GPU. CUDA is ready and, at best, nothing is allocated yet. Without ``max_entries`` the history is on already."""
        self.manifest = replace(self.manifest, device=device, versions=self._versions())
        self._attempt(lambda: write_manifest(self.folder, self.manifest))
        if max_entries is not None:
            start_history(max_entries, stacks)
            self._max_entries = max_entries
        if self.looks_for_holders:
            self._prepare_survey()
        self._detach = on_out_of_memory(self._on_out_of_memory)
        if self.owns_peaks:
            self._peaks = PeakLedger()

    @contextmanager
    def phase(self, name: str, **detail: int | float | str) -> Iterator[None]:
        """Keep what happens inside as one phase, its levels measured at its end. It is kept also when an exception ends it."""
        phase = Phase(name=name, started_us=self.clock_us(), detail=detail)
        self.on_phase(name)
        self._append(phase)  # in case it never ends
        peaks = PhasePeaks()
        try:
            with nullcontext(peaks) if self._peaks is None else self._peaks.phase() as peaks:
                yield
        finally:
            self._keep_phase(phase, peaks.peaks)

    def observe(self, kind: str, **detail: Any) -> None:
        """Keep one observation of a guard."""
        self._append(Observation(kind=kind, time_us=self.clock_us(), detail=detail))

    def note(self, sentence: str) -> None:
        """Keep a sentence for the reader."""
        self._append(sentence)

    def progress(self, done: int, total: int) -> None:
        """Say how far the workload is, to whoever shows it."""
        self.on_progress(done, total)

    def mark(self, name: str, started_us: int, **detail: int | float | str) -> None:
        """Begin the phase ``name``, which lasts until the next mark."""
        self.end_mark()
        self._mark = Phase(name=name, started_us=started_us, detail=detail)
        self._append(self._mark)

    def end_mark(self) -> None:
        """End the phase that the last mark began."""
        if self._mark is not None:
            self._keep_phase(self._mark, {})
            self._mark = None

    def checkpoint(self) -> None:
        """Bring snapshot and manifest up to date while the program runs."""
        with self._lock:
            if not self._finished:
                self._write_snapshot(SNAPSHOT)
                so_far = replace(
                    self.manifest, statistics=self._statistics(), duration_s=self._elapsed_s()
                )
                self._attempt(lambda: write_manifest(self.folder, so_far))

    def expected_checkpoint_s(self) -> float:
        """About how long a checkpoint would take now, by the events that the history holds."""
        statistics = self._statistics()
        events = sum(statistics.get(f"allocation.all.{kind}", 0) for kind in ("allocated", "freed"))
        return min(events, self._max_entries) * SNAPSHOT_S_PER_EVENT

    def keep_holders(self) -> None:
        """Bring what holds memory up to date, at the person's request; in the thread that is to be looked at."""
        if not self._finished:
            self._survey("signal", device_in_use())

    def finish(
        self,
        ending: Exit,
        device: DeviceInfo | None = None,
        error: BaseException | None = None,
        *,
        may_collect: bool = False,
    ) -> None:
        """Write the last snapshot, then the manifest with the end in it; from then on the recording is complete.

        ``device`` replaces the one that the recording began with: a program may have chosen another since. ``error`` is the
        exception that ends the program. ``may_collect`` says that nothing of the program comes after this, so that garbage
        may be collected and measured.
        """
        with self._lock, no_collection():
            self._detach()
            self.end_mark()
            device = device or self.manifest.device
            statistics = self._statistics()
            annotations = self._write_snapshot(SNAPSHOT)
            if self._surveyor is not None:
                self._last_look(ending, error, may_collect=may_collect)
            self.manifest = replace(
                self.manifest,
                exit=ending,
                statistics=statistics,
                versions=self._versions(),
                duration_s=self._elapsed_s(),
                device=device,
                phases=phases_of(annotations, 0 if device is None else device.index),
            )
            self._finished = True
            self._attempt(self._close)

    def _close(self) -> None:
        # Read back rather than kept: a long run's phases must not fill the recorded program's memory.
        write_manifest(self.folder, with_journal(self.manifest, journal_entries(self.folder)))

    def _keep_phase(self, phase: Phase, peaks: Mapping[str, int]) -> None:
        statistics = memory_statistics(device) if (device := device_in_use()) is not None else {}
        reserved = statistics.get("reserved_bytes.all.current")
        ended = replace(
            phase,
            ended_us=self.clock_us(),
            allocated_bytes=statistics.get("allocated_bytes.all.current"),
            active_bytes=statistics.get("active_bytes.all.current"),
            reserved_bytes=reserved,
            active_peak_bytes=peaks.get("active_bytes.all.peak"),
            reserved_peak_bytes=peaks.get("reserved_bytes.all.peak"),
            # Asking a device that this process does not use would make a context there.
            driver_free_bytes=driver_free(device) if reserved else None,
        )
        self._append(ended)

    def _append(self, entry: Phase | Observation | str) -> None:
        with self._lock:
            if self._finished or self._entries > MOST_ENTRIES:
                return
            self._entries += 1
            if self._entries > MOST_ENTRIES:
                entry = f"Only the first {MOST_ENTRIES} phases, observations and notes were kept."
            line = journal_line(entry)
            self._attempt(lambda: append_line(self.folder / JOURNAL, line))

    def _on_out_of_memory(self, device: int, requested: int, total: int, free: int) -> None:
        with no_collection():
            self.observe(
                "oom",
                device=device,
                requested_bytes=requested,
                total_bytes=total,
                driver_free_bytes=free,
            )
            allowed_s = OOM_SNAPSHOT_SHARE * (time.monotonic() - self._started)
            if self._snapshot_s <= allowed_s or not (self.folder / OOM_SNAPSHOT).exists():
                self._write_snapshot(OOM_SNAPSHOT)
                started = time.monotonic()
                self._oom_survey = self._survey("oom", device)
                self._snapshot_s += time.monotonic() - started

    def _last_look(self, ending: Exit, error: BaseException | None, *, may_collect: bool) -> None:
        """Look for holders where the program still holds much, and measure what a collection returns of what only cycles keep.

        After an out-of-memory error that nobody caught, the survey at the error tells more than one after it.
        """
        found, name = self._oom_survey, OOM_HOLDERS
        if ending.kind is ExitKind.SIGNAL:
            return  # the program still runs, in another thread
        if ending.kind is not ExitKind.OUT_OF_MEMORY:
            index = device_in_use()
            total = 0 if self.manifest.device is None else self.manifest.device.total_bytes
            held = 0 if index is None else torch.cuda.memory_allocated(index)
            if held < max(WORTH_A_LOOK * total, 1):
                return
            found, name = self._survey("end", index, error), HOLDERS
        if found is not None and may_collect and self._surveyor is not None:
            returned = self._surveyor.collect(found)
            if returned is not None:
                with_it = replace(found, collected=returned)
                self._attempt(lambda: write_survey(self.folder / name, with_it))

    def _survey(
        self, moment: str, device: int | None, error: BaseException | None = None
    ) -> Survey | None:
        """Look for what holds a device's memory, and keep it. Whatever goes wrong here is a note, not the program's error."""
        if device is None or self._surveyor is None:
            return None
        try:
            found: Survey | None = self._surveyor.survey(moment, device, error)
        except Exception as problem:  # noqa: BLE001 # see above
            self.note(f"What holds memory could not be looked for: {problem!r}")
            return None
        name = OOM_HOLDERS if moment == "oom" else HOLDERS
        if found is not None:
            kept = found
            self._attempt(lambda: write_survey(self.folder / name, kept))
        return found

    def _prepare_survey(self) -> None:
        """Load what a survey needs before it is needed: what an import leaves behind would set the garbage collector off."""
        try:
            from vramdoc.record.inside import survey
        except ImportError as error:  # numpy, which the program's Python may lack
            self.note(f"What holds memory cannot be looked for: {error}")
            return
        self._surveyor = survey

    def _write_snapshot(self, name: str) -> Sequence[Mapping[str, Any]]:
        """Write one over the one before; returns its annotations. Nothing, before the GPU is used."""
        annotations: list[Mapping[str, Any]] = []
        if self.manifest.device is None:
            return annotations
        started = time.monotonic()
        with self._lock:
            try:
                self._attempt(lambda: annotations.extend(write_snapshot(self.folder / name)))
            except (
                RuntimeError
            ) as error:  # a device-side assert: every call to CUDA fails from then on
                self.note(f"A snapshot could not be taken: {error}")
            self._snapshot_s += time.monotonic() - started
        return annotations

    def _statistics(self) -> dict[str, int]:
        if self._peaks is not None:
            return self._peaks.statistics()
        device = device_in_use()
        return {} if device is None else memory_statistics(device)

    def _versions(self) -> dict[str, str]:
        return {**self.manifest.versions, **versions()}

    def _elapsed_s(self) -> float:
        return round(time.monotonic() - self._started, 3)

    def _attempt(self, action: Callable[[], None]) -> None:
        """Do something with the disk unless it has refused before; a refusal is told once and stops the recording."""
        if self.problem is not None:
            return
        try:
            action()
        except StorageProblem as problem:
            self.problem = problem
            self.say(problem)
