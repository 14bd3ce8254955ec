"""Which folder of a run a process writes to, decided without a coordinator.

    <run>/           the process of rank 0, or the first one where nobody has a rank
    <run>/rank-N/    the process of rank N; without ranks, the next free number

Whoever creates a folder's journal owns that folder. A journal is gone once its run is complete, hence the look at the manifest.
"""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping
from itertools import count
from pathlib import Path

from vramdoc.record.recording import JOURNAL, MANIFEST
from vramdoc.record.storage import create_root, storage_problem

RANK_VARIABLES = ("RANK", "OMPI_COMM_WORLD_RANK", "PMI_RANK", "SLURM_PROCID")
"""Set by torchrun and accelerate, Open MPI, MPICH and Intel MPI, Slurm; the first that is set counts."""

_BEYOND_RANKS = 1_000_000


def rank_of(environment: Mapping[str, str]) -> int | None:
    """The rank that the launcher gave this process; None for a process of its own."""
    values = (environment.get(name, "") for name in RANK_VARIABLES)
    return next((int(value) for value in values if value.isdecimal()), None)


def claim_folder(run: Path, rank: int | None) -> Path:
    """Create and take the folder for this process.

    Raises:
        StorageProblem: it cannot be created.
    """
    create_root(run.parent)
    for folder in _candidates(run, rank):
        try:
            folder.mkdir(mode=0o700, parents=True, exist_ok=True)
            handle = os.open(folder / JOURNAL, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
        except FileExistsError:
            continue
        except OSError as error:
            raise storage_problem(folder, error) from error
        os.close(handle)
        if not (folder / MANIFEST).exists():
            return folder
        (folder / JOURNAL).unlink()  # complete: an earlier process of the same rank
    raise AssertionError("the candidates never end")


def _candidates(run: Path, rank: int | None) -> Iterator[Path]:
    """The folders in question, best first."""
    if not rank:
        yield run
    else:
        yield run / f"rank-{rank}"
    # A second process of one rank (a spawned worker inherits the variable) goes where no rank will come.
    for number in count(1 if rank is None else _BEYOND_RANKS):
        yield run / f"rank-{number}"
