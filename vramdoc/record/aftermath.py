"""After a recorded program: the ends that its processes could not write, and nothing half-written left in the folder.

It reads and rewrites manifests of finished processes; it starts and stops nothing.
"""

from __future__ import annotations

import contextlib
import os
import re
import shutil
import signal
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

from vramdoc.errors import UnreadableInput
from vramdoc.record.ending import OomKills, exit_of_status, read_oom_kills
from vramdoc.record.first_manifest import first_manifest
from vramdoc.record.manifest import Exit, ExitKind, Manifest
from vramdoc.record.recording import (
    FATAL,
    JOURNAL,
    STATUS,
    Recording,
    is_recording,
    write_manifest,
)
from vramdoc.record.storage import TEMPORARY_PREFIX, writer_of

_FATAL_SIGNALS = {
    "Segmentation fault": "SIGSEGV",
    "Aborted": "SIGABRT",
    "Bus error": "SIGBUS",
    "Illegal instruction": "SIGILL",
    "Floating-point exception": "SIGFPE",
    "Floating point exception": "SIGFPE",
}
"""As faulthandler words them (Modules/faulthandler.c), by the signal's name."""


NO_SNAPSHOT = "It was killed before its first snapshot, so what its memory held is not known. A shorter `--every` takes one sooner."
UNKNOWN_STATUS = "This process ended without an exception; the status that it gave to its own parent is not known."


def complete_run(
    folder: Path, *, pid: int, status: int, before: OomKills, note: str = ""
) -> Recording | None:
    """Complete every process's recording under ``folder`` and return the run's; None when no process kept one.

    ``pid`` and ``status`` are those of the program that was started, whose end is known exactly. ``note`` is for the reader of
    a run that did not end well.

    Raises:
        StorageProblem: a manifest cannot be written.
    """
    if not folder.is_dir():
        return None
    _clear_away(folder)
    after = read_oom_kills()
    for recording in (Recording(folder), *Recording(folder).ranks):
        with contextlib.suppress(UnreadableInput):  # none, for the run's own folder
            manifest = recording.manifest
            is_own = manifest.extra.get("pid") == pid
            is_running = manifest.exit.kind is ExitKind.RUNNING
            if is_running and not is_own and _is_alive(manifest.extra.get("pid")):
                continue  # left running in the background, and still recording
            ending = _of_the_program if is_own else _of_another_process
            completed = ending(manifest, recording.folder, status, before, after)
            if _left_no_snapshot(completed, recording):
                completed = replace(completed, notes=(*completed.notes, NO_SNAPSHOT))
            if note and completed.exit.kind is not ExitKind.SUCCESS:
                completed = replace(completed, notes=(*completed.notes, note))
            if completed != manifest:
                write_manifest(recording.folder, completed)
            for leftover in (FATAL, JOURNAL, STATUS):  # what was of use is in the manifest by now
                (recording.folder / leftover).unlink(missing_ok=True)
    return _with_head(folder, status, before, after)


def running_pids(folder: Path) -> Iterator[int]:
    """The processes that are recording into ``folder`` now."""
    for recording in (Recording(folder), *Recording(folder).ranks):
        with contextlib.suppress(UnreadableInput):
            manifest = recording.manifest
            pid = manifest.extra.get("pid")
            if manifest.exit.kind is ExitKind.RUNNING and isinstance(pid, int):
                yield pid


def _left_no_snapshot(manifest: Manifest, recording: Recording) -> bool:
    """Whether a process that used the GPU was killed in its first second; see ``inside.watch.FIRST_S``."""
    is_killed = manifest.exit.kind in {ExitKind.SIGNAL, ExitKind.HOST_OOM}
    used_gpu = manifest.device is not None and NO_SNAPSHOT not in manifest.notes
    return is_killed and used_gpu and recording.snapshot_path is None


def _of_the_program(
    manifest: Manifest, folder: Path, status: int, before: OomKills, after: OomKills
) -> Manifest:
    written = manifest.exit
    if written.kind is ExitKind.RUNNING or (written.kind is ExitKind.SUCCESS and status != 0):
        ending, sentence = exit_of_status(status, before, after)
        ending = replace(ending, traceback=_fatal_stacks(folder))
        return _ended(manifest, ending, sentence)
    return replace(manifest, exit=replace(written, code=status))


def _of_another_process(
    manifest: Manifest, folder: Path, status: int, before: OomKills, after: OomKills
) -> Manifest:
    """A process that the program started: its status went to its parent, so only what it left behind tells."""
    written, code = manifest.exit, _exit_status(folder)
    if written.kind is not ExitKind.RUNNING:
        return _with_code(manifest, code, all_well=status == 0)
    if code is not None:  # it ended by itself, and its recorder could not write
        return _ended(manifest, Exit(kind=_kind_of(code), code=code), "")
    stacks = _fatal_stacks(folder)
    number = _fatal_signal(stacks or "")
    if number is not None:
        return _ended(manifest, Exit(kind=ExitKind.SIGNAL, signal=number, traceback=stacks), "")
    # What else ends a process without a word is SIGKILL (or os._exit); whether the host ran out of memory is known.
    ending, sentence = exit_of_status(-9, before, after)
    if ending.kind is ExitKind.HOST_OOM:
        return _ended(manifest, replace(ending, code=None), sentence)
    return _ended(
        manifest,
        Exit(kind=ExitKind.SIGNAL),
        "This process ended without finishing its recording: it was killed, or left through os._exit().",
    )


def _with_code(manifest: Manifest, code: int | None, *, all_well: bool) -> Manifest:
    """The end that a process wrote itself, with the status that it left with, which decides whether it ended well."""
    written = manifest.exit
    if written.kind is not ExitKind.SUCCESS:
        return manifest if code is None else replace(manifest, exit=replace(written, code=code))
    if code is None and written.code is None and not all_well:
        return _ended(manifest, written, UNKNOWN_STATUS)
    code = code or written.code or 0
    return replace(manifest, exit=replace(written, kind=_kind_of(code), code=code))


def _kind_of(code: int) -> ExitKind:
    return ExitKind.EXCEPTION if code else ExitKind.SUCCESS


def _exit_status(folder: Path) -> int | None:
    try:
        return int((folder / STATUS).read_bytes())
    except (OSError, ValueError):
        return None


def _is_alive(pid: object) -> bool:
    if os.name != "posix" or not isinstance(pid, int):  # elsewhere there is no harmless way to ask
        return False
    try:
        os.kill(pid, 0)
    except OSError:
        return False
    return True


def _ended(manifest: Manifest, ending: Exit, sentence: str) -> Manifest:
    return replace(
        manifest, exit=ending, notes=(*manifest.notes, sentence) if sentence else manifest.notes
    )


def _with_head(folder: Path, status: int, before: OomKills, after: OomKills) -> Recording | None:
    """The run's recording. Where the first process kept none but others did, it gets a manifest that says so."""
    recording = Recording(folder)
    if is_recording(folder):
        return recording
    if not recording.ranks:
        shutil.rmtree(folder, ignore_errors=True)
        return None
    other = recording.ranks[0].manifest
    ending, _ = exit_of_status(status, before, after)
    head = replace(
        first_manifest("script", other.target.get("name", ""), {}),
        created=other.created,
        versions=other.versions,
        alloc_conf=other.alloc_conf,
        environment=other.environment,
        exit=ending,
        notes=("The process of rank 0 did not use the GPU; the recordings are the other ranks'.",),
    )
    write_manifest(folder, head)
    return recording


def _clear_away(folder: Path) -> None:
    """Remove what was being written when its writer died."""
    for path in folder.rglob(f"{TEMPORARY_PREFIX}*"):
        if not _is_alive(writer_of(path)):
            path.unlink(missing_ok=True)
    for path in folder.glob("rank-*"):
        if path.is_dir() and not is_recording(path):
            shutil.rmtree(path, ignore_errors=True)


def _fatal_stacks(folder: Path) -> str | None:
    try:
        return (folder / FATAL).read_text(encoding="utf-8", errors="replace") or None
    except OSError:
        return None


def _fatal_signal(stacks: str) -> int | None:
    found = re.match(r"Fatal Python error: ([\w -]+)", stacks)
    name = _FATAL_SIGNALS.get(found[1].strip()) if found else None
    return getattr(signal, name, None) if name else None
