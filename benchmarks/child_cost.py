"""What one command costs: CPU seconds, wall seconds and peak memory of a process of its own, as the kernel counted them."""

from __future__ import annotations

import os
import shutil
import subprocess
import tempfile
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

ROUNDS = 3
LONG_S = 4
"""A command that takes longer is run once: what start-up and the machine's other work add weighs little in it."""


@dataclass(frozen=True)
class Cost:
    """Of one process, start-up included."""

    seconds: float
    """CPU, user and system."""
    mebibytes: float
    wall: float


def child_cost(
    command: Sequence[str],
    *,
    beside: Path,
    rounds: int = ROUNDS,
    files: Sequence[Path] = (),
    accepted: Sequence[int] = (0,),
    again: bool = False,
) -> Cost | None:
    """The best of some rounds by CPU (of one where it is long), each in a new folder and without what an earlier one kept; None when it fails.

    Args:
        command: its arguments may name the files by their names alone.
        beside: a folder on the disk of the files.
        rounds: how often.
        files: linked into the folder that the command runs in.
        accepted: exit codes of a command that did its work.
        again: measure the second of two runs in the same folder, which finds what the first one kept.
    """
    cache = beside / "cache"
    best = None
    for _ in range(rounds):
        with tempfile.TemporaryDirectory(dir=beside) as folder:
            for file in files:
                os.link(file, Path(folder) / file.name)
            # Libraries that were compiled once stay; parsed snapshots do not.
            shutil.rmtree(cache / "vramdoc" / "parsed", ignore_errors=True)
            for _ in range(2 if again else 1):
                now, code = _run(command, Path(folder), cache)
        if code not in accepted:
            return None
        best = now if best is None or now.seconds < best.seconds else best
        if now.seconds > LONG_S:
            break
    return best


def _run(command: Sequence[str], folder: Path, cache: Path) -> tuple[Cost, int]:
    environment = {**os.environ, "HOME": str(folder), "XDG_CACHE_HOME": str(cache)}
    started = time.perf_counter()
    child = subprocess.Popen(
        command,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
        cwd=folder,
        env=environment,
    )
    _, status, used = os.wait4(child.pid, 0)
    wall = time.perf_counter() - started
    child.returncode = os.waitstatus_to_exitcode(status)
    cost = Cost(used.ru_utime + used.ru_stime, used.ru_maxrss / 1024, wall)
    return cost, child.returncode
