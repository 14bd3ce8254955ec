"""``vramdoc capacity MODEL``: which contexts times how many sessions fit, and what happens beyond."""

from __future__ import annotations

import json
import sys
from dataclasses import replace
from pathlib import Path
from typing import Annotated, Any, Optional

import typer

from vramdoc.cli import options
from vramdoc.cli.exit_codes import ExitCode

FORMATS = ("terminal", "json", "markdown")


def capacity(
    model: Annotated[
        Path,
        typer.Argument(
            metavar="MODEL",
            help="model.safetensors, *.safetensors.index.json or a Hugging Face folder.",
        ),
    ],
    gpu: options.Gpu = None,
    context: Annotated[
        Optional[str], typer.Option("--context", help="Contexts in tokens, e.g. 2k,8k,32k.")
    ] = None,
    sessions: Annotated[
        Optional[str], typer.Option("--sessions", help="Concurrent sessions, e.g. 1,4,16.")
    ] = None,
    cache: options.Cache = None,
    alloc_conf: Annotated[
        Optional[str],
        typer.Option("--alloc-conf", metavar="CONF", help="The allocator config to run under."),
    ] = None,
    batch: options.Batch = None,
    dtype: options.Dtype = None,
    seed: options.Seed = None,
    foreign: options.ForeignMemory = "",
    alternatives: Annotated[
        bool,
        typer.Option(
            "--alternatives/--no-alternatives",
            help="Look for a config or cache strategy where a cell does not fit.",
        ),
    ] = True,
    workload: Annotated[
        str, typer.Option("--workload", help="fill (the grid), or serve (sessions with arrivals).")
    ] = "fill",
    arrivals: Annotated[
        Optional[int],
        typer.Option("--arrivals", min=1, help="serve: sessions that arrive; default 24."),
    ] = None,
    lengths: Annotated[
        Optional[str],
        typer.Option(
            "--lengths",
            help="serve: lognormal:IN,OUT, uniform:LO-HI,LO-HI, fixed:IN,OUT, or a CSV/JSONL of lengths.",
        ),
    ] = None,
    check: Annotated[
        Optional[Path],
        typer.Option(
            "--check", metavar="STATEMENT.json", help="Say whether a statement still holds."
        ),
    ] = None,
    json_output: options.Json = False,
    output_format: Annotated[
        str, typer.Option("--format", help="terminal, json or markdown (the statement), on stdout.")
    ] = "terminal",
    report_file: options.ReportFile = None,
    plot: options.PlotDir = None,
    force: options.Force = False,
    include_private: options.IncludePrivate = False,
    recordings: options.Recordings = Path(".vramdoc"),
) -> None:
    """Say which contexts times how many concurrent sessions fit, verified by running the border."""
    from vramdoc.cli import publish, terminal
    from vramdoc.cli.values import CACHES, DTYPES, choice, counts, size
    from vramdoc.examine import planning

    wanted = "json" if json_output else choice("--format", output_format, FORMATS)
    serves = choice("--workload", workload, ("fill", "serve")) == "serve"
    _refuse_forgotten(
        "--workload serve" if serves else "" if check is None else "--check",
        {
            "--check": check, "--arrivals": arrivals, "--lengths": lengths, "--report-file": report_file, "--plot": plot,
            "--format markdown": wanted if wanted == "markdown" else None,
        },
    )  # fmt: skip
    asked = {
        "contexts": context if context is None else tuple(counts("--context", context)),
        "sessions": sessions if sessions is None else tuple(counts("--sessions", sessions)),
        "cache": cache if cache is None else choice("--cache", cache, CACHES),
        "dtype": dtype if dtype is None else choice("--dtype", dtype, DTYPES),
        "foreign_bytes": size("--foreign", foreign) if foreign else None,
        "alloc_conf": alloc_conf,
        "batch": batch,
        "seed": seed,
    }
    fields = {name: value for name, value in asked.items() if value is not None}
    with terminal.progress() as show_progress:
        question = planning.Question(
            model=model, gpu=gpu, fields=fields, recordings=recordings, progress=show_progress
        )
        if serves:
            own = {"arrivals": arrivals, "lengths": lengths}
            served = planning.serve(question, {k: v for k, v in own.items() if v is not None})
            _show_served(publish.cleaned(served, include_private=include_private), wanted)
            raise typer.Exit(ExitCode.HEALTHY if served["exit"] == "success" else ExitCode.FINDINGS)
        if check is not None:
            found, _answer = planning.recheck(question, check)
            _show_check(publish.cleaned(found, include_private=include_private), wanted)
            raise typer.Exit(CHECKED[found.holds])
        answer = planning.plan(replace(question, fields={**fields, "alternatives": alternatives}))
        answer = publish.cleaned(answer, include_private=include_private)
    _publish(answer, wanted=wanted, report_file=report_file, plot=plot, force=force)


CHECKED = {True: ExitCode.HEALTHY, False: ExitCode.FINDINGS, None: ExitCode.UNDECIDED}
"""Whether a statement holds to the exit code."""
OF_SERVE = ("--arrivals", "--lengths")
OF_GRID = ("--report-file", "--plot", "--format markdown")
NOT_WITH = {
    "--workload serve": ("--check", *OF_GRID),
    "--check": (*OF_SERVE, *OF_GRID),
    "": OF_SERVE,
}
"""What would be read and then forgotten, by what is asked for; the empty one is the grid."""


def _refuse_forgotten(asked_for: str, given: dict[str, Any]) -> None:
    from vramdoc.errors import UsageError

    for flag in NOT_WITH[asked_for]:
        if given[flag] is not None:
            if not asked_for:
                raise UsageError(f"{flag} is for --workload serve")
            raise UsageError(f"{flag} does not go with {asked_for}")


def _show_served(served: dict[str, Any], wanted: str) -> None:
    from vramdoc.cli import terminal
    from vramdoc.report.capacity import render_served

    screen = terminal.terminal_of(sys.stdout)
    if wanted == "json":
        terminal.show(json.dumps(served, indent=2))
    else:
        terminal.show(render_served(served, **screen.shape))


def _show_check(found: Any, wanted: str) -> None:
    from vramdoc.cli import terminal
    from vramdoc.report.capacity import check_object, render_check

    screen = terminal.terminal_of(sys.stdout)
    if wanted == "json":
        terminal.show(json.dumps(check_object(found), indent=2))
    else:
        terminal.show(render_check(found, **screen.shape))


def _publish(
    answer: Any, *, wanted: str, report_file: Path | None, plot: Path | None, force: bool
) -> None:
    from vramdoc.cli import terminal
    from vramdoc.report.capacity import render_capacity, render_capacity_json
    from vramdoc.report.statement import render_statement_markdown

    screen = terminal.terminal_of(sys.stdout)
    if wanted == "json":
        terminal.show(render_capacity_json(answer.plan, answer.statement.to_json()))
    elif wanted == "markdown":
        terminal.show(render_statement_markdown(answer.statement))
    else:
        terminal.show(render_capacity(answer.plan, **screen.shape))
    if report_file is not None:
        terminal.write_file(report_file, render_statement_markdown(answer.statement), force=force)
        terminal.say(f"capacity statement written to {report_file}")
    if plot is not None:
        from vramdoc.report.plots import plot_capacity

        terminal.write_files(plot, plot_capacity(answer.plan.cells), force=force)
        terminal.say(f"pictures written to {plot}")
