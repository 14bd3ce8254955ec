"""A sweep: many snapshots, each replayed under many configs, through any ``concurrent.futures`` executor.

One task is one file (``file_task``): the worker reads it and replays it under every config. What is finished can be kept (``kept``)
and is not done again. It does not know which executor runs it, nor which configs are worth trying.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from concurrent.futures import Executor, as_completed
from dataclasses import dataclass
from statistics import median

from vramdoc.errors import UsageError
from vramdoc.replay.compare import Comparison, ReplayResult, judge, rank
from vramdoc.replay.file_task import FileReplays, Task, content_if_readable, replay_file
from vramdoc.replay.kept import Kept


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
