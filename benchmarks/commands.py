"""Whole commands on one large snapshot, beside the page that torch draws of it: CPU, wall, memory; start-up included."""

from __future__ import annotations

import sys

from child_cost import child_cost
from section import Options, Section, table

HEALTHY_FINDINGS_UNDECIDED = (0, 1, 3)
GOAL_S = 10


def measure(options: Options) -> Section:
    snapshot = options.snapshot(options.largest)
    ours, torch = (
        [sys.executable, "-m", "vramdoc"],
        [sys.executable, "-m", "torch.cuda._memory_viz"],
    )
    commands = {
        "vramdoc diagnose": [*ours, "diagnose", snapshot.name],
        "vramdoc diagnose --html": [*ours, "diagnose", snapshot.name, "--html", "page.html", "--force"],
        "vramdoc diff": [*ours, "diff", snapshot.name, snapshot.name],
        "vramdoc compare-alloc-configs": [*ours, "compare-alloc-configs", snapshot.name],
        "torch _memory_viz trace_plot": [*torch, "trace_plot", snapshot.name, "-o", "page.html"],
    }  # fmt: skip
    costs = {}
    for name, command in commands.items():
        for again in (False, True) if command[: len(ours)] == ours else (False,):
            costs[f"{name}, the second time" if again else name] = child_cost(
                command,
                beside=options.folder,
                files=[snapshot],
                accepted=HEALTHY_FINDINGS_UNDECIDED,
                again=again,
            )
    rows = [
        [name, f"{c.seconds:.2f}", f"{c.wall:.2f}", f"{c.mebibytes:.0f}"] if c else [name, "failed", "", ""]
        for name, c in costs.items()
    ]  # fmt: skip
    page, theirs = costs["vramdoc diagnose --html"], costs["torch _memory_viz trace_plot"]
    ratios = {}
    if page and theirs:
        ratios[f"page of {options.largest:,}: CPU beside torch's trace_plot"] = (
            page.seconds / theirs.seconds
        )
        ratios[f"page of {options.largest:,}: memory beside torch's trace_plot"] = (
            page.mebibytes / theirs.mebibytes
        )
    head = (
        f"{options.largest:,} events. Goal: each analysis within {GOAL_S} s. The second time, the parsed form of the snapshot is "
        "found in the cache; measuring, replaying and reporting are done again.\n\n"
    )
    return Section(
        text=head + table(["command", "CPU s", "wall s", "peak MiB"], rows), ratios=ratios
    )
