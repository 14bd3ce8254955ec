"""A sweep: many snapshots, each replayed under many configs, through any ``concurrent.futures`` executor.

One task is one file: the worker reads it and replays it under every config, so that only figures travel back. What is finished can
be kept (``kept``) and is not done again. It does not know which executor runs it, nor which configs are worth trying.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Sequence
from concurrent.futures import Executor, as_completed
from dataclasses import dataclass, replace
from pathlib import Path
from statistics import median
from typing import TYPE_CHECKING

from vramdoc import __version__
from vramdoc.errors import UnreadableInput, UsageError, VramdocError
from vramdoc.replay.compare import Comparison, ReplayResult, compare, judge, rank
from vramdoc.replay.replayable import DeviceFacts, fidelity, replayable
from vramdoc.snapshot.reader import read_snapshot

if TYPE_CHECKING:
    from vramdoc.replay.kept import Kept


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


@dataclass(frozen=True, slots=True, kw_only=True)
class ConfigTotal:
    """One config over all files that could be replayed under it. Bytes; files by their number in the sweep."""

    config: str
    files: int
    worst: ReplayResult
    """Of the file that fares worst: it runs out of memory, or reserves most."""
    worst_file: int
    reserved_worst: int | None
    """The highest peak; None where no file could be replayed."""
    reserved_median: int | None
    oom_files: tuple[int, ...]
    """Those that run out of memory."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Totals:
    """Every config, best first, and the judgement by the file that fares worst under each."""

    configs: tuple[ConfigTotal, ...]
    current: str | None
    """The config that all files were recorded under; None where they differ."""
    judgement: Comparison


def content_of(path: str) -> str:
    """SHA-256 of a file, in hexadecimal.

    Raises:
        UnreadableInput: it cannot be read.
    """
    try:
        with open(path, "rb") as file:  # noqa: PTH123 - file_digest is newer than our oldest Python
            digest = hashlib.sha256()
            while piece := file.read(1 << 20):
                digest.update(piece)
    except OSError as error:
        raise UnreadableInput(
            f"{Path(path).name} cannot be read: {error.strerror or error}"
        ) from error
    return digest.hexdigest()


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


def sweep(
    tasks: Sequence[Task],
    executor: Executor,
    *,
    kept: Kept | None = None,
    progress: Callable[[int], None] = lambda _done: None,
) -> list[FileReplays]:
    """Carry out every task; results in the order of the tasks, whatever the executor.

    Args:
        tasks: one a file.
        executor: threads, processes, a Dask cluster. Files are read where it runs.
        kept: where finished files are kept as they come, and found again.
        progress: told how many are done, in this process.
    """
    done = {} if kept is None else _finished_before(tasks, executor, kept)
    waiting = {
        executor.submit(replay_file, task): number
        for number, task in enumerate(tasks)
        if number not in done
    }
    try:
        for future in as_completed(waiting):
            number = waiting[future]
            done[number] = future.result()
            if kept is not None:
                kept.put(tasks[number], done[number])
            progress(len(done))
    except BaseException:
        for future in waiting:
            future.cancel()
        raise
    return [done[number] for number in range(len(tasks))]


def _finished_before(
    tasks: Sequence[Task], executor: Executor, kept: Kept
) -> dict[int, FileReplays]:
    """Files whose content was swept before. The workers read them: that is where they lie."""
    if kept.is_empty():
        return {}
    contents = executor.map(content_if_readable, [task.path for task in tasks])
    found = (
        (n, kept.get(task, c)) for n, (task, c) in enumerate(zip(tasks, contents, strict=True))
    )
    return {number: result for number, result in found if result is not None}


def totals(files: Sequence[FileReplays]) -> Totals:
    """Sum a sweep up.

    Raises:
        UsageError: not one file could be replayed.
    """
    replayed = [file for file in files if not file.problem]
    if not replayed:
        raise UsageError(
            f"none of the {len(files)} snapshots can be replayed; the first: {files[0].problem}",
            "record with torch.cuda.memory._record_memory_history(), or with `vramdoc record`",
        )
    by_config: dict[str, list[tuple[int, ReplayResult]]] = {}
    for number, file in enumerate(files):
        for result in file.results:
            by_config.setdefault(result.config, []).append((number, result))
    every = {config: _total(config, found) for config, found in by_config.items()}
    currents = {file.current for file in replayed}
    current = currents.pop() if len(currents) == 1 else None
    ranked = rank([total.worst for total in every.values()])
    # A config under which one file of many runs out of memory is better than one under which all do; one that not every file
    # could be replayed under cannot be told better than the others.
    ordered = sorted(
        (every[result.config] for result in ranked),
        key=lambda total: (
            bool(total.worst.refused),
            total.files < len(replayed),
            len(total.oom_files),
        ),
    )
    whole = [total.worst for total in ordered if total.files == len(replayed)]
    return Totals(configs=tuple(ordered), current=current, judgement=judge(whole, current or ""))


def _total(config: str, found: Sequence[tuple[int, ReplayResult]]) -> ConfigTotal:
    # A refusal outweighs everything: then nothing is known of that file.
    worst_file, worst = max(
        found,
        key=lambda pair: (
            bool(pair[1].refused),
            pair[1].oom is not None,
            pair[1].reserved_peak or 0,
            -pair[0],
        ),
    )
    peaks = [result.reserved_peak for _, result in found if result.reserved_peak is not None]
    return ConfigTotal(
        config=config,
        files=len(found),
        worst=worst,
        worst_file=worst_file,
        reserved_worst=max(peaks, default=None),
        reserved_median=int(median(peaks)) if peaks else None,
        oom_files=tuple(number for number, result in found if result.oom is not None),
    )
