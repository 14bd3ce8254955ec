"""What one command costs: CPU seconds, wall seconds and peak memory of a process of its own, as the kernel counted them."""

from __future__ import annotations

import os
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
) -> Cost | None:
    """The best of some rounds by CPU (of one where it is long), each in a new folder, where no cache of an earlier one lies; None when it fails.

    Args:
        command: its arguments may name the files by their names alone.
        beside: a folder on the disk of the files.
        rounds: how often.
        files: linked into the folder that the command runs in.
        accepted: exit codes of a command that did its work.
    """
    best = None
    for _ in range(rounds):
        with tempfile.TemporaryDirectory(dir=beside) as folder:
            for file in files:
                os.link(file, Path(folder) / file.name)
            started = time.perf_counter()
            child = subprocess.Popen(
                command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, cwd=folder,
                env={**os.environ, "HOME": folder, "XDG_CACHE_HOME": str(beside / "cache")},
            )  # fmt: skip
            _, status, used = os.wait4(child.pid, 0)
            wall = time.perf_counter() - started
            child.returncode = os.waitstatus_to_exitcode(status)
        if child.returncode not in accepted:
            return None
        now = Cost(used.ru_utime + used.ru_stime, used.ru_maxrss / 1024, wall)
        best = now if best is None or now.seconds < best.seconds else best
        if now.seconds > LONG_S:
            break
    return best
