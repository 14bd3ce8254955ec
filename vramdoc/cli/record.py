"""``vramdoc record -- python train.py``: run any program with recording on; keep what happened, out of memory included."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Optional

import typer

from vramdoc.cli import options

STACKS = ("python", "all", "none")


def record(
    command: Annotated[
        list[str],
        typer.Argument(
            metavar="-- COMMAND...", help="python train.py ..., torchrun ..., a script."
        ),
    ],
    gpu: options.Gpu = None,
    alloc_conf: options.AllocConf = "",
    every: Annotated[
        Optional[float],
        typer.Option("--every", metavar="SECONDS", help="A snapshot every N seconds."),
    ] = None,
    max_entries: Annotated[
        int, typer.Option("--max-entries", min=1, help="Trace events kept a device.")
    ] = 1_000_000,
    stacks: Annotated[
        str, typer.Option("--stacks", help="Stacks kept with events: python, all or none.")
    ] = "python",
    holders: Annotated[
        bool,
        typer.Option(
            help="At an out-of-memory error and at the end, look for what holds the memory (half a second)."
        ),
    ] = True,
    foreign: options.ForeignMemory = "",
    recordings: options.Recordings = Path(".vramdoc"),
) -> None:
    """Run a program unchanged and keep what its GPU memory did. Its exit code is passed on."""
    from vramdoc.cli.values import choice, size
    from vramdoc.errors import UsageError
    from vramdoc.record.command import record_command

    if every is not None and every <= 0:
        raise UsageError(f"--every {every} is not a positive number of seconds")
    ended = record_command(
        tuple(command),
        gpu=gpu,
        alloc_conf=alloc_conf,
        root=recordings,
        foreign_bytes=size("--foreign", foreign) if foreign else 0,
        every=every,
        max_entries=max_entries,
        stacks=choice("--stacks", stacks, STACKS),
        holders=holders,
    )
    raise typer.Exit(ended.code)
