"""One file of a sweep: what is asked of it, and what a worker answers. Figures travel back, no snapshot does.

It knows neither which executor carries the task nor that there are other files.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from pathlib import Path

from vramdoc import __version__
from vramdoc.errors import UnreadableInput, UsageError, VramdocError
from vramdoc.replay.compare import ReplayResult, compare
from vramdoc.replay.replayable import DeviceFacts, fidelity, replayable
from vramdoc.snapshot.content import digest_of
from vramdoc.snapshot.reader import read_snapshot


@dataclass(frozen=True, slots=True, kw_only=True)
class Task:
    """One file and what to do with it; small, and the same for a process next door and a machine far away."""

    path: str
    """Absolute, as the worker sees it."""
    configs: tuple[str, ...]
    """Tried in this order, after the recorded one."""
    release: str | None = None
    """torch release that recorded it; None assumes the newest known one."""
    device: DeviceFacts | None = None
    """Another device to ask about."""
    version: str = __version__
    """Of the program that asks: a worker of another version could answer otherwise."""


@dataclass(frozen=True, slots=True, kw_only=True)
class FileReplays:
    """What became of one file. It names no file: of equal files it is the same."""

    content: str
    """SHA-256 of the file; empty where it could not be read."""
    current: str = ""
    """The config that it was recorded under."""
    exact: bool = False
    """Whether the replay under that config comes out event for event as recorded."""
    results: tuple[ReplayResult, ...] = ()
    problem: str = ""
    """Why it could not be replayed; then there are no results."""


def content_of(path: str) -> str:
    """SHA-256 of a file, in hexadecimal.

    Raises:
        UnreadableInput: it cannot be read.
    """
    try:
        return digest_of(Path(path))
    except OSError as error:
        raise UnreadableInput(
            f"{Path(path).name} cannot be read: {error.strerror or error}"
        ) from error


def content_if_readable(path: str) -> str:
    """SHA-256 of a file; empty where it cannot be read."""
    try:
        return content_of(path)
    except UnreadableInput:
        return ""


def replay_file(task: Task) -> FileReplays:
    """Carry out one task; what runs in a worker.

    Raises:
        UsageError: this worker's vramdoc is of another version than the program that asks.
    """
    if task.version != __version__:
        raise UsageError(
            f"a worker has vramdoc {__version__}, this is {task.version}",
            "install the same version everywhere",
        )
    content = ""
    try:
        content = content_of(task.path)
        snapshot = read_snapshot(Path(task.path))
        recording = replayable(snapshot, release=task.release)
        how = fidelity(recording)
        if task.device is not None:
            recording = replace(recording, device=task.device)
        current = snapshot.alloc_conf
        results = compare(recording, list(dict.fromkeys((current, *task.configs))), fidelity=how)
    except VramdocError as error:
        return FileReplays(content=content, problem=error.message)
    return FileReplays(content=content, current=current, exact=how.exact, results=tuple(results))
