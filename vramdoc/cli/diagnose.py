"""``vramdoc diagnose TARGET``: what happened or would happen, and what fixes it."""

from __future__ import annotations

import shlex
import sys
from collections.abc import Sequence
from pathlib import Path, PureWindowsPath
from typing import TYPE_CHECKING, Annotated, Optional

import typer

from vramdoc.cli import options
from vramdoc.cli.exit_codes import ExitCode

if TYPE_CHECKING:
    from vramdoc.report.contents import Report

SEVERITIES = ("info", "warning", "error")
OUTPUT_OPTIONS = ("--report", "--html", "--plot", "--export", "--export-format", "--recordings")


def diagnose(
    target: Annotated[
        list[str],
        typer.Argument(
            metavar="TARGET",
            help="model.safetensors, *.safetensors.index.json, a Hugging Face folder, a snapshot, a recording, several snapshots (one a rank), a crash text (and the script that printed it), - for stdin, or a command after --.",
        ),
    ],
    gpu: options.Gpu = None,
    alloc_conf: options.AllocConf = "",
    workload: options.Workload = None,
    context: options.Context = None,
    sessions: options.Sessions = None,
    new_tokens: options.NewTokens = None,
    batch: options.Batch = None,
    cache: options.Cache = None,
    dtype: options.Dtype = None,
    seed: options.Seed = None,
    foreign: options.ForeignMemory = "",
    trials: Annotated[
        int, typer.Option("--trials", min=0, help="How many fixes to try at most; 0 tries none.")
    ] = 4,
    json_output: options.Json = False,
    report_file: options.ReportFile = None,
    html: options.HtmlFile = None,
    plot: options.PlotDir = None,
    export: options.ExportDir = None,
    export_format: options.ExportFormat = "csv",
    output_format: Annotated[
        Optional[str],
        typer.Option("--format", help="terminal, json, markdown or github, on stdout."),
    ] = None,
    quiet: options.Quiet = False,
    verbose: options.Verbose = False,
    force: options.Force = False,
    include_private: options.IncludePrivate = False,
    exit_zero: options.ExitZero = False,
    fail_on: Annotated[
        str,
        typer.Option("--fail-on", help="The least severity that exits 1: info, warning, error."),
    ] = "info",
    recordings: options.Recordings = Path(".vramdoc"),
) -> None:
    """Say what happened, or would happen, and which change fixes it."""
    from vramdoc.cli import publish, terminal
    from vramdoc.cli.values import choice, size, workload_fields
    from vramdoc.examine.pipeline import examine
    from vramdoc.examine.request import DiagnoseRequest
    from vramdoc.examine.target import recognise_all
    from vramdoc.report.formats import TABLES

    choice("--fail-on", fail_on, SEVERITIES)
    outputs = publish.Outputs(
        format=publish.chosen_format(output_format, json_output=json_output),
        report_file=report_file,
        html_file=html,
        plot_folder=plot,
        export_folder=export,
        export_format=choice("--export-format", export_format, TABLES),
        force=force,
        include_private=include_private,
        quiet=quiet,
        verbose=verbose,
    )
    outputs.check()
    found = recognise_all(target)
    fields = workload_fields(
        name=workload,
        context=context,
        sessions=sessions,
        new_tokens=new_tokens,
        batch=batch,
        cache=cache,
        dtype=dtype,
        seed=seed,
    )
    with terminal.progress(enabled=not quiet) as show_progress:
        request = DiagnoseRequest(
            target=found,
            argv=tuple(target) if found.kind == "command" else (),
            gpu=gpu,
            alloc_conf=alloc_conf,
            workload=fields,
            foreign_bytes=size("--foreign", foreign) if foreign else 0,
            recordings=recordings,
            trials=trials,
            command=reproducing_command(target, found.name),
            stdin=sys.stdin.buffer if found.kind == "crash-text" and found.path is None else None,
            progress=show_progress,
        )
        result = examine(request)
    publish.publish(result, outputs)
    raise typer.Exit(ExitCode.HEALTHY if exit_zero else exit_code(result, fail_on=fail_on))


def exit_code(report: Report, *, fail_on: str) -> ExitCode:
    """The status that a report ends with (design section 5)."""
    from vramdoc.report.contents import HEALTHY, UNDECIDED

    if report.primary == UNDECIDED:
        return ExitCode.UNDECIDED
    if report.primary == HEALTHY:
        return ExitCode.HEALTHY
    least = SEVERITIES.index(fail_on)
    grave = any(SEVERITIES.index(str(v.severity)) >= least for v in report.confirmed)
    return ExitCode.FINDINGS if grave else ExitCode.HEALTHY


def reproducing_command(target: Sequence[str], name: str) -> str:
    """The command line as typed, without what only says where output goes, and with file names instead of paths."""
    own = sys.argv[1:]
    if len(target) > 1 and "--" in own:
        own = [*own[: own.index("--") + 1], *map(_without_folders, target)]
    elif len(target) == 1:
        own = [name if word == target[0] else word for word in own]
    elif target:
        from vramdoc.examine.sweep import distinct_names

        names = dict(zip(target, distinct_names([Path(word) for word in target]), strict=True))
        own = [names.get(word, word) for word in own]
    kept: list[str] = []
    words = iter(own)
    for word in words:
        if word in OUTPUT_OPTIONS:
            next(words, None)
        elif word.split("=")[0] not in OUTPUT_OPTIONS:
            kept.append(word)
    return f"vramdoc {shlex.join(kept)}"


def _without_folders(word: str) -> str:
    """``--data=/somewhere/else/text.csv`` is ``--data=text.csv``; what is no path stays."""
    flag, equals, value = word.partition("=") if word.startswith("-") else ("", "", word)
    is_path = "/" in value or "\\" in value
    return f"{flag}{equals}{PureWindowsPath(value).name if is_path else value}"
