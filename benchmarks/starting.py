"""Start-up: what a command costs that has next to nothing to do, beside an interpreter that does nothing."""

from __future__ import annotations

import sys

from child_cost import child_cost
from section import Options, Section, table

CRASH = (
    "torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 480.00 MiB. GPU 0 has a total capacity of 2.00 GiB of which "
    "430.00 MiB is free. Process 1 has 1.58 GiB memory in use. Of the allocated memory 96.00 MiB is allocated by PyTorch, and "
    "1.08 GiB is reserved by PyTorch but unallocated.\n"
)
ROUNDS = 10


def measure(options: Options) -> Section:
    crash = options.folder / "crash.log"
    crash.write_text(CRASH, encoding="utf-8")
    ours = [sys.executable, "-m", "vramdoc"]
    commands = {
        "python -c pass": ([sys.executable, "-c", "pass"], None),
        "python -m pip --version": ([sys.executable, "-m", "pip", "--version"], None),
        "vramdoc --help": ([*ours, "--help"], 0.2),
        "vramdoc diagnose crash.log": ([*ours, "diagnose", crash.name], 0.3),
        "python -c 'import torch'": ([sys.executable, "-c", "import torch"], None),
    }
    rows, ratios, base = [], {}, 0.0
    for name, (command, goal) in commands.items():
        one = child_cost(
            command, beside=options.folder, files=[crash], rounds=ROUNDS, accepted=(0, 1, 3)
        )
        if one is None:
            rows.append([name, "failed", "", "", ""])
            continue
        base = base or one.seconds
        rows.append(
            [
                name,
                f"{one.seconds:.2f}",
                f"{one.wall:.2f}",
                f"{one.mebibytes:.0f}",
                f"{goal:g} s CPU" if goal else "",
            ]
        )
        if goal:
            ratios[f"{name}: CPU beside python -c pass"] = one.seconds / base
    return Section(
        text=table(["command", "CPU s", "wall s", "peak MiB", "goal"], rows), ratios=ratios
    )
