"""``vramdoc capacity MODEL``: which contexts times how many sessions fit, and what happens beyond."""

from __future__ import annotations

import json
import sys
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
    alloc_conf: options.AllocConf = "",
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
        int, typer.Option("--arrivals", min=1, help="serve: sessions that arrive.")
    ] = 24,
    lengths: Annotated[
        str,
        typer.Option(
            "--lengths",
            help="serve: lognormal:IN,OUT, uniform:LO-HI,LO-HI, fixed:IN,OUT, or a CSV/JSONL of lengths.",
        ),
    ] = "",
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
    recordings: options.Recordings = Path(".vramdoc"),
) -> None:
    """Say which contexts times how many concurrent sessions fit, verified by running the border."""
    from vramdoc.cli import terminal
    from vramdoc.cli.values import CACHES, DTYPES, choice, counts, size
    from vramdoc.examine import planning

    wanted = "json" if json_output else choice("--format", output_format, FORMATS)
    choice("--workload", workload, ("fill", "serve"))
    fields: dict[str, Any] = {"alloc_conf": alloc_conf, "alternatives": alternatives}
    if context is not None:
        fields["contexts"] = tuple(counts("--context", context))
    if sessions is not None:
        fields["sessions"] = tuple(counts("--sessions", sessions))
    if cache is not None:
        fields["cache"] = choice("--cache", cache, CACHES)
    if dtype is not None:
        fields["dtype"] = choice("--dtype", dtype, DTYPES)
    fields |= {k: v for k, v in (("batch", batch), ("seed", seed)) if v is not None}
    with terminal.progress() as show_progress:
        question = planning.Question(
            model=model,
            gpu=gpu,
            fields=fields,
            recordings=recordings,
            foreign_bytes=size("--foreign", foreign) if foreign else 0,
            progress=show_progress,
        )
        if workload == "serve":
            served = planning.serve(question, _serve_fields(fields, arrivals, lengths))
            return _show_served(served, wanted)
        if check is not None:
            found, answer = planning.recheck(question, check)
            _show_check(found, wanted)
            raise typer.Exit(ExitCode.HEALTHY if found.holds else ExitCode.FINDINGS)
        answer = planning.plan(question)
    _publish(answer, wanted=wanted, report_file=report_file, plot=plot, force=force)
    return None


def _serve_fields(fields: dict[str, Any], arrivals: int, lengths: str) -> dict[str, Any]:
    """The grid's options as one workload: the largest context, at most the largest number of sessions."""
    chosen: dict[str, Any] = {
        k: fields[k] for k in ("cache", "dtype", "batch", "seed") if k in fields
    }
    if "contexts" in fields:
        chosen["context"] = max(fields["contexts"])
    if "sessions" in fields:
        chosen["sessions"] = max(fields["sessions"])
    return {**chosen, "arrivals": arrivals, "lengths": lengths}


def _show_served(served: dict[str, Any], wanted: str) -> None:
    from vramdoc.cli import terminal
    from vramdoc.report.capacity import render_served

    screen = terminal.terminal_of(sys.stdout)
    if wanted == "json":
        terminal.show(json.dumps(served, indent=2))
    else:
        terminal.show(render_served(served, width=screen.width, colour=screen.colour))


def _show_check(found: Any, wanted: str) -> None:
    from vramdoc.cli import terminal
    from vramdoc.report.capacity import check_object, render_check

    screen = terminal.terminal_of(sys.stdout)
    if wanted == "json":
        terminal.show(json.dumps(check_object(found), indent=2))
    else:
        terminal.show(render_check(found, width=screen.width, colour=screen.colour))


def _publish(
    answer: Any, *, wanted: str, report_file: Path | None, plot: Path | None, force: bool
) -> None:
    from vramdoc.capacity.statement import statement_markdown
    from vramdoc.cli import terminal
    from vramdoc.report.capacity import render_capacity, render_capacity_json

    screen = terminal.terminal_of(sys.stdout)
    if wanted == "json":
        terminal.show(render_capacity_json(answer.plan, answer.statement.to_json()))
    elif wanted == "markdown":
        terminal.show(statement_markdown(answer.statement))
    else:
        terminal.show(
            render_capacity(
                answer.plan, width=screen.width, colour=screen.colour, ascii_only=screen.ascii_only
            )
        )
    if report_file is not None:
        terminal.write_file(report_file, statement_markdown(answer.statement), force=force)
        terminal.say(f"capacity statement written to {report_file}")
    if plot is not None:
        from vramdoc.report.plots import plot_capacity

        plot.mkdir(parents=True, exist_ok=True)
        for name, content in plot_capacity(answer.plan.cells).items():
            terminal.write_file(plot / name, content, force=force)
        terminal.say(f"pictures written to {plot}")
