"""What loading a snapshot costs, in CPU seconds and peak memory, beside bare ``pickle.load`` and the peers that are installed.

    python benchmarks/loading.py [EVENTS ...] [--peers DIRECTORY]

The same seeded files for all, in the same run, each contestant in a process of its own; the best of three by CPU. Ratios are to
``pickle.load`` with the collector off, which builds the objects and nothing else. The last table is growth: how time and memory
rise from each size to the next (1.0 is proportional). ``--peers`` names the ``bin`` folder of an environment with ptmem and
pt-snap-cli; what is missing is skipped by name.
"""

from __future__ import annotations

import argparse
import itertools
import shutil
import sys
import tempfile
from collections.abc import Mapping, Sequence
from math import log
from pathlib import Path

from child_cost import Cost, child_cost
from snapshots import write_snapshot

_BARE = "import gc, pickle, sys; gc.disable(); data = pickle.load(open(sys.argv[1], 'rb')); import os; os._exit(0)"
_OURS = (
    "import sys, os; from pathlib import Path; from vramdoc.snapshot.reader import read_snapshot; "
    "snapshot = read_snapshot(Path(sys.argv[1])); os._exit(0)"
)
_REFERENCE = (
    "import vramdoc.snapshot.scanner.library as library; library.scanner_library = lambda: None; "
    + _OURS
)
_CASE = (
    "import sys, os; from pathlib import Path; from vramdoc.evidence.build import case_from_snapshot; "
    "case = case_from_snapshot(Path(sys.argv[1])); os._exit(0)"
)


def contestants(peers: Path | None) -> Mapping[str, Sequence[str]]:
    """Name -> command, to which the file is added."""
    python = sys.executable
    found = {
        "pickle.load, collector off": [python, "-c", _BARE],
        "vramdoc: read": [python, "-c", _OURS],
        "vramdoc: read, without a compiler": [python, "-c", _REFERENCE],
        "vramdoc: read and measure everything": [python, "-c", _CASE],
        "torch _memory_viz stats": [python, "-m", "torch.cuda._memory_viz", "stats"],
    }
    for name, program, arguments in (
        ("ptmem -s", "ptmem", ["-s"]),
        ("pt-snap import", "pt-snap", ["import"]),
    ):
        path = shutil.which(program, path=None if peers is None else str(peers))
        if path is None:
            print(f"{name}: not installed, skipped", file=sys.stderr)
        else:
            found[name] = [path, *arguments]
    return found


def cost(command: Sequence[str], snapshot: Path) -> Cost | None:
    """What the command costs on this file."""
    return child_cost([*command, snapshot.name], beside=snapshot.parent, files=[snapshot])


def table(events: int, costs: Mapping[str, Cost | None]) -> str:
    """One size as Markdown."""
    base = costs["pickle.load, collector off"]
    assert base is not None
    lines = [f"| {events:,} events | CPU s | ratio | peak MiB | ratio |", "|---|---|---|---|---|"]
    for name, one in costs.items():
        if one is None:
            lines.append(f"| {name} | failed | | | |")
        else:
            lines.append(
                f"| {name} | {one.seconds:.2f} | {one.seconds / base.seconds:.2f} "
                f"| {one.mebibytes:.0f} | {one.mebibytes / base.mebibytes:.2f} |"
            )
    return "\n".join(lines)


def growth(all_costs: Mapping[int, Mapping[str, Cost | None]]) -> str:
    """Slopes in log-log from each size to the next, of CPU time and of memory."""
    sizes = sorted(all_costs)
    steps = list(itertools.pairwise(sizes))
    lines = [
        "| growth | " + " | ".join(f"{a:,} to {b:,}" for a, b in steps) + " |",
        "|---|" + "---|" * len(steps),
    ]
    for name in all_costs[sizes[0]]:
        cells = []
        for a, b in steps:
            one, other = all_costs[a].get(name), all_costs[b].get(name)
            cells.append(
                "" if one is None or other is None
                else f"{log(other.seconds / one.seconds) / log(b / a):.2f} CPU, {log(other.mebibytes / one.mebibytes) / log(b / a):.2f} memory"
            )  # fmt: skip
        lines.append(f"| {name} | " + " | ".join(cells) + " |")
    return "\n".join(lines)


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("events", nargs="*", type=int, default=[10_000, 100_000, 1_000_000])
    parser.add_argument("--peers", type=Path)
    options = parser.parse_args()
    all_costs = {}
    for events in options.events:
        with tempfile.TemporaryDirectory() as name:
            path = Path(name) / "snapshot.pickle"
            write_snapshot(path, events)
            all_costs[events] = {
                name: cost(command, path) for name, command in contestants(options.peers).items()
            }
        print(table(events, all_costs[events]), end="\n\n", flush=True)
    if len(all_costs) > 1:
        print(growth(all_costs))


if __name__ == "__main__":
    main()
