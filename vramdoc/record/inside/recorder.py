"""Recorder: keeps what one process does in its recording, from the first use of the GPU to the end.

It is the ``Journal`` that a workload talks to, and what the guards and the marks of a recorded script report to. It never
stops the program: where the disk refuses, it says so once (``problem``) and keeps quiet from then on.
"""

from __future__ import annotations

import os
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import torch

from vramdoc.errors import StorageProblem
from vramdoc.record.inside.history import on_out_of_memory, start_history, write_snapshot
from vramdoc.record.inside.levels import PeakLedger, PhasePeaks, memory_statistics
from vramdoc.record.inside.surroundings import versions
from vramdoc.record.manifest import DeviceInfo, Exit, Manifest, Observation, Phase
from vramdoc.record.recording import (
    JOURNAL,
    OOM_SNAPSHOT,
    SNAPSHOT,
    Recording,
    journal_line,
    write_manifest,
)
from vramdoc.record.storage import open_private_append, storage_problem

MOST_ENTRIES = 200_000
"""Phases, observations and notes kept; at about 300 bytes each that is 60 MB of manifest."""

OOM_SNAPSHOT_SHARE = 0.05
"""A program that catches out-of-memory errors by the thousand spends at most this share of its time on their snapshots."""


@dataclass(slots=True)
class Recorder:
    """One process's recording, being written."""

    folder: Path
    manifest: Manifest
    owns_peaks: bool = False
    """Whether peaks may be reset phase by phase: in vramdoc's own workloads, never in somebody's program."""
    say: Callable[[StorageProblem], None] = lambda _problem: None
    """Told once when the recording can no longer be written."""
    on_phase: Callable[[str], None] = lambda _name: None
    on_progress: Callable[[int, int], None] = lambda _done, _total: None
    clock_us: Callable[[], int] = lambda: time.time_ns() // 1000
    problem: StorageProblem | None = None
    _journal: int | None = None
    _entries: int = 0
    _peaks: PeakLedger | None = None
    _started: float = field(default_factory=time.monotonic)
    _snapshot_s: float = 0.0
    _lock: threading.RLock = field(default_factory=threading.RLock)

    def begin(self, device: DeviceInfo, *, max_entries: int, stacks: str) -> None:
        """Start recording. CUDA is ready and, at best, nothing is allocated yet."""
        self.manifest = replace(
            self.manifest, device=device, versions={**self.manifest.versions, **versions()}
        )
        self._attempt(self._open)
        start_history(max_entries, stacks)
        on_out_of_memory(self._on_out_of_memory)
        if self.owns_peaks:
            self._peaks = PeakLedger()

    @contextmanager
    def phase(self, name: str, **detail: int | float | str) -> Iterator[None]:
        """Keep what happens inside as one phase, its levels measured at its end. It is kept also when an exception ends it."""
        started = self.clock_us()
        self.on_phase(name)
        self._append(Phase(name=name, started_us=started, detail=detail))  # if it never ends
        if self._peaks is None:
            try:
                yield
            finally:
                self._keep_phase(name, started, detail, {})
            return
        peaks = PhasePeaks()
        try:
            with self._peaks.phase() as peaks:
                yield
        finally:
            self._keep_phase(name, started, detail, peaks.peaks)

    def observe(self, kind: str, **detail: Any) -> None:
        """Keep one observation of a guard."""
        self._append(Observation(kind=kind, time_us=self.clock_us(), detail=detail))

    def note(self, sentence: str) -> None:
        """Keep a sentence for the reader."""
        self._append(sentence)

    def progress(self, done: int, total: int) -> None:
        """Say how far the workload is, to whoever shows it."""
        self.on_progress(done, total)

    def snapshot(self, name: str = SNAPSHOT) -> None:
        """Write a snapshot of this instant over the one before."""
        self._attempt(lambda: self._write_snapshot(name))

    def finish(self, ending: Exit, *, with_snapshot: bool = True) -> None:
        """Write the last snapshot, then the manifest with the end in it; from then on the recording is complete."""
        statistics = memory_statistics() if self._peaks is None else self._peaks.statistics()
        if with_snapshot:
            self.snapshot()
        self._attempt(lambda: self._close(ending, statistics))

    def _open(self) -> None:
        write_manifest(self.folder, self.manifest)
        path = self.folder / JOURNAL
        try:
            self._journal = open_private_append(path)
        except OSError as error:
            raise storage_problem(path, error) from error

    def _close(self, ending: Exit, statistics: Mapping[str, int]) -> None:
        with self._lock:
            if self._journal is not None:
                os.close(self._journal)
                self._journal = None
        # Read back rather than kept: a long run's phases must not fill the recorded program's memory.
        journaled = Recording(self.folder).manifest
        complete = replace(
            journaled,
            exit=ending,
            statistics=statistics,
            versions={**self.manifest.versions, **versions()},
            duration_s=round(time.monotonic() - self._started, 3),
        )
        write_manifest(self.folder, complete)

    def _keep_phase(
        self,
        name: str,
        started: int,
        detail: Mapping[str, int | float | str],
        peaks: Mapping[str, int],
    ) -> None:
        statistics = memory_statistics()
        self._append(
            Phase(
                name=name,
                started_us=started,
                ended_us=self.clock_us(),
                allocated_bytes=statistics.get("allocated_bytes.all.current"),
                active_bytes=statistics.get("active_bytes.all.current"),
                reserved_bytes=statistics.get("reserved_bytes.all.current"),
                active_peak_bytes=peaks.get("active_bytes.all.peak"),
                reserved_peak_bytes=peaks.get("reserved_bytes.all.peak"),
                driver_free_bytes=torch.cuda.mem_get_info()[0],
                detail=detail,
            )
        )

    def _append(self, entry: Phase | Observation | str) -> None:
        with self._lock:
            if self._journal is None or self._entries > MOST_ENTRIES:
                return
            self._entries += 1
            if self._entries > MOST_ENTRIES:
                entry = f"Only the first {MOST_ENTRIES} phases, observations and notes were kept."
            handle, line = self._journal, journal_line(entry)
            self._attempt(lambda: _write_line(handle, line, self.folder / JOURNAL))

    def _on_out_of_memory(self, _device: int, _requested: int, _total: int, _free: int) -> None:
        elapsed = time.monotonic() - self._started
        if (
            self._snapshot_s <= OOM_SNAPSHOT_SHARE * elapsed
            or not (self.folder / OOM_SNAPSHOT).exists()
        ):
            self.snapshot(OOM_SNAPSHOT)

    def _write_snapshot(self, name: str) -> None:
        with self._lock:
            self._snapshot_s += write_snapshot(self.folder / name)

    def _attempt(self, action: Callable[[], None]) -> None:
        """Do something with the disk unless it has refused before; a refusal is told once and stops the recording."""
        if self.problem is not None:
            return
        try:
            action()
        except StorageProblem as problem:
            self.problem = problem
            self.say(problem)


def _write_line(handle: int, line: bytes, path: Path) -> None:
    try:
        os.write(handle, line)
    except OSError as error:
        raise storage_problem(path, error) from error
