"""Benchmarks that are programs of their own (``recording``, ``page``, ``lint``), run and quoted."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

from section import Options, Section, table

HERE = Path(__file__).parent


_WHAT_A_LOOP_PAYS = (
    "What a decode loop pays beyond the history is two guards, each a Python function around a method of `torch.Tensor`. Measured inside "
    "the loop (thread CPU, tenth percentile of 300 steps), a conversion costs 4.7 µs more, of which 1.5 are the call around it, and a "
    "slice assignment 3.4, of which 0.9 are; beside other work both take some four times what they take alone, because their code is no "
    "longer in the CPU's caches. So the guard on casts takes itself off after 1,000 conversions (5 ms a run), and the guard on slices "
    "stays, as an overflow comes at the end: an 8B decoder writes 64 slices a token, which is 0.2 ms."
)


def recording(_options: Options) -> Section:
    """What recording costs over torch's own history."""
    done = run_program("recording", "--rounds", "3")
    if done.returncode:
        return Section(text=f"Not measured: {last_line(done)}")
    loops = json.loads(done.stdout)
    rows = [
        [name, *(f"{taken[f'{way}_s']:.2f}" for way in ("bare", "history", "vramdoc")), f"{taken['over_history']:.2f}", f"{taken['over_history_fastest']:.2f}"]
        for name, taken in loops.items()
    ]  # fmt: skip
    headings = [
        "loop on the virtual GPU",
        "bare, CPU s",
        "torch's history",
        "vramdoc record",
        "ratio of medians",
        "of the fastest",
    ]
    text = (
        "Loops of allocator calls with nothing computed between them, so that whoever watches weighs most. Goal: at most 1.03 over torch's "
        "own `_record_memory_history`. A median of three rounds on a loaded machine swings by more than that goal; the ratio of the "
        f"fastest rounds is the steadier one.\n\n{_WHAT_A_LOOP_PAYS}\n\n"
    )
    ratios = {
        f"recording {name}: CPU beside torch's history": t["over_history_fastest"]
        for name, t in loops.items()
    }
    return Section(text=text + table(headings, rows), ratios=ratios)


def page(options: Options) -> Section:
    """The interactive page: size, making, drawing."""
    done = run_program("page", str(options.largest))
    if done.returncode:
        return Section(text=f"Not measured: {last_line(done)}")
    head = f"The interactive page of {options.largest:,} events; goals: at most 3 MB, drawn within 2 s."
    return Section(text=f"{head}\n\n```text\n{done.stdout.rstrip()}\n```")


def lint(options: Options) -> Section:
    """Linting a large tree."""
    done = run_program("lint", "--peers", str(options.peers))
    if done.returncode:
        return Section(text=f"Not measured: {last_line(done)}")
    return Section(text=done.stdout.strip())


def run_program(name: str, *arguments: str) -> subprocess.CompletedProcess[str]:
    """Run a benchmark that is a program, with the repository and its own folder to import from."""
    paths = os.pathsep.join([str(HERE.parent), str(HERE)])
    return subprocess.run(
        [sys.executable, str(HERE / f"{name}.py"), *arguments],
        capture_output=True, text=True, check=False, env={**os.environ, "PYTHONPATH": paths},
    )  # fmt: skip


def last_line(done: subprocess.CompletedProcess[str]) -> str:
    """Why a program failed."""
    return (done.stderr.strip().splitlines() or ["no message"])[-1]
