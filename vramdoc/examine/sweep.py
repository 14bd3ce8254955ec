"""The snapshots of many ranks under many configs: which files, which configs, on which workers, and the table of it all.

Workers are processes of this machine, or a Dask cluster. What a config does is ``replay``'s to say.
"""

from __future__ import annotations

import multiprocessing
import os
import signal
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import BrokenExecutor, CancelledError, Executor, ProcessPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from vramdoc.errors import (
    ChildProblem,
    DeviceUnavailable,
    MissingDependency,
    StorageProblem,
    UsageError,
)

if TYPE_CHECKING:
    from vramdoc.replay.file_task import FileReplays, Task
    from vramdoc.replay.kept import Kept
    from vramdoc.replay.sweep import ConfigTotal, Totals
    from vramdoc.report.sweep import Sweep, SweepRow

KEPT = "sweeps"
"""Folder beside the recordings where finished files are kept."""
ANSWERS_WITHIN_S = 10
"""Time that a Dask scheduler gets to answer; Dask's own default is 30."""


def _silent(_sentence: str) -> None:
    """Say nothing."""


@dataclass(frozen=True, slots=True, kw_only=True)
class SweepRequest:
    """One question about the snapshots of many ranks."""

    paths: tuple[Path, ...]
    alloc_confs: tuple[str, ...] = ()
    """Added to the default set."""
    gpu: str | None = None
    """Another device to ask about."""
    dask: str | None = None
    """Address of a Dask scheduler; None uses processes of this machine."""
    resume: Path | None = None
    """Where finished files are kept; None is a folder beside the recordings."""
    recordings: Path = Path(".vramdoc")
    command: str = ""
    progress: Callable[[str], None] = _silent


def one_target_only(options: Mapping[str, object]) -> None:
    """Refuse what a sweep does not do.

    Raises:
        UsageError: one of ``options``, flag to value, was given.
    """
    given = next((flag for flag, value in options.items() if value), None)
    if given is not None:
        raise UsageError(f"{given} is for one target", "give one snapshot at a time")


def sweep_configs(request: SweepRequest) -> Sweep:
    """Answer ``request``.

    Raises:
        VramdocError: not one snapshot can be replayed, a config that the release refuses, or the workers cannot be had.
    """
    from vramdoc.replay.sweep import sweep, totals

    tasks = _tasks(request)
    kept, note = _kept(request)
    count = len(tasks)
    request.progress(f"replaying {count} snapshots under {len(tasks[0].configs)} configs")
    with _workers(request.dask, count) as executor:
        files = sweep(
            tasks,
            executor,
            kept=kept,
            progress=lambda done: request.progress(f"{done} of {count} snapshots"),
        )
    return _table(request, files, totals(files), _notes(request, tasks[0], files, note))


def _tasks(request: SweepRequest) -> list[Task]:
    from vramdoc.allocator.config import AllocatorConfig
    from vramdoc.allocator.releases import NEWEST
    from vramdoc.examine.replays import device_facts
    from vramdoc.replay.configs import default_configs
    from vramdoc.replay.file_task import Task

    for text in request.alloc_confs:
        AllocatorConfig.parse(text, release=NEWEST)  # refused with torch's own reason
    configs = tuple(dict.fromkeys((*default_configs(NEWEST), *request.alloc_confs)))
    device = None if request.gpu is None else device_facts(request.gpu)
    return [
        Task(path=str(path.resolve()), configs=configs, release=NEWEST, device=device)
        for path in request.paths
    ]


def _kept(request: SweepRequest) -> tuple[Kept | None, str]:
    """Where to keep what is finished. Only a folder that the person named must be writable."""
    from vramdoc.replay.kept import Kept

    kept = Kept(request.resume or request.recordings / KEPT)
    try:
        kept.prepare()
    except StorageProblem as problem:
        if request.resume is not None:
            raise
        return None, f"nothing is kept for a later run: {problem.message}"
    return kept, ""


@contextmanager
def _workers(dask: str | None, files: int) -> Iterator[Executor]:
    if dask is not None:
        with _dask_client(dask) as client:
            # Not pure: a file may have changed since the cluster saw the same task.
            yield client.get_executor(pure=False)
        return
    # Spawned, not forked: a fork would copy whatever threads this process has.
    pool = ProcessPoolExecutor(
        max_workers=min(files, os.cpu_count() or 1),
        mp_context=multiprocessing.get_context("spawn"),
        initializer=_leave_interrupts_to_the_parent,
    )
    try:
        yield pool
    except BrokenExecutor as error:
        raise ChildProblem(
            "a worker process was killed, perhaps because memory ran out",
            "run the same command again: what was finished is kept",
        ) from error
    finally:
        pool.shutdown(cancel_futures=True)


def _leave_interrupts_to_the_parent() -> None:
    signal.signal(signal.SIGINT, signal.SIG_IGN)


@contextmanager
def _dask_client(address: str) -> Iterator[Any]:
    try:
        from distributed import Client, KilledWorker
        from distributed.comm.addressing import parse_address
        from distributed.comm.registry import get_backend
    except ImportError as error:
        raise MissingDependency(
            "--dask needs dask.distributed", "pip install vramdoc[dask]"
        ) from error
    try:
        get_backend(parse_address(address)[0])  # a client that fails over this hangs as it goes
        client = Client(address, timeout=ANSWERS_WITHIN_S, set_as_default=False)
    except ValueError as error:
        raise UsageError(
            f"--dask {address}: {error}", "give a scheduler's address, e.g. tcp://host:8786"
        ) from error
    except OSError as error:
        raise DeviceUnavailable(
            f"no Dask scheduler answers at {address}", "start one with `dask scheduler`"
        ) from error
    with client:
        try:
            yield client
        except KilledWorker as error:
            raise ChildProblem(
                "workers of the cluster die over one of the files, perhaps because memory runs out",
                "give the workers more memory and run again: what was finished is kept",
            ) from error
        except CancelledError as error:
            raise ChildProblem(
                f"the Dask cluster at {address} went away", "run again: what was finished is kept"
            ) from error


def _notes(
    request: SweepRequest, task: Task, files: Sequence[FileReplays], note: str
) -> tuple[str, ...]:
    """What all rows have in common, and what could not be replayed or only about."""
    from vramdoc.report.sweep import first_few

    named = list(zip(distinct_names(request.paths), files, strict=True))
    inexact = [name for name, file in named if file.results and not file.exact]
    notes = [f"snapshots do not name their torch release; the rules of {task.release} are assumed"]
    if task.device is not None:
        notes.append(task.device.source)
    if len({file.current for file in files if not file.problem}) > 1:
        notes.append("the snapshots were recorded under different configs")
    if inexact:
        notes.append(
            f"indicative only for {first_few(inexact)}: replayed under the recorded config, the events come out otherwise; "
            "one of them alone shows where"
        )
    notes += [f"{name} cannot be replayed: {file.problem}" for name, file in named if file.problem]
    return (*notes, *filter(None, [note]))


def _table(
    request: SweepRequest, files: Sequence[FileReplays], found: Totals, notes: tuple[str, ...]
) -> Sweep:
    from vramdoc.report.sweep import Sweep, SweepFile

    names = distinct_names(request.paths)
    return Sweep(
        rows=tuple(_row(total, found, names) for total in found.configs),
        files=tuple(
            SweepFile(name=name, current=file.current, exact=file.exact, problem=file.problem)
            for name, file in zip(names, files, strict=True)
        ),
        target_name=f"{len(files)} snapshots",
        sentence=f"by the rank that fares worst, {found.judgement.sentence}",
        command=request.command,
        notes=notes,
    )


def _row(total: ConfigTotal, found: Totals, names: Sequence[str]) -> SweepRow:
    from vramdoc.report.sweep import SweepRow

    winner = found.judgement.winner
    remarks = [total.worst.refused, *total.worst.remarks]
    return SweepRow(
        config=total.config,
        files=total.files,
        reserved_worst=total.reserved_worst,
        reserved_median=total.reserved_median,
        worst_file=names[total.worst_file],
        oom_files=tuple(names[number] for number in total.oom_files),
        device_alloc=total.worst.device_alloc,
        device_free=total.worst.device_free,
        source=total.worst.source,
        note="; ".join(filter(None, remarks)),
        is_current=total.config == found.current,
        is_winner=winner is not None and winner.config == total.config,
    )


def distinct_names(paths: Sequence[Path]) -> list[str]:
    """Each path's last parts, as few as tell all of them apart: ranks often differ by their folder only."""
    resolved = [path.resolve() for path in paths]
    for count in range(1, max(len(path.parts) for path in resolved)):
        names = ["/".join(path.parts[-count:]) for path in resolved]
        if len(set(names)) == len(set(resolved)):
            return names
    return [path.as_posix() for path in resolved]
