"""``vramdoc lint PATH...``: memory mistakes visible in source."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Optional

import typer

from vramdoc.cli import options
from vramdoc.cli.exit_codes import ExitCode

FORMATS = ("text", "json", "sarif", "github")


def lint(
    paths: Annotated[
        list[Path],
        typer.Argument(
            metavar="PATH...",
            help="Python files, notebooks, shell scripts, Dockerfiles, YAML, or folders.",
        ),
    ],
    output_format: Annotated[
        str, typer.Option("--format", "--output-format", help="text, json, sarif or github.")
    ] = "text",
    select: Annotated[
        str, typer.Option("--select", metavar="IDS", help="Only these rules, e.g. VD001,VD004.")
    ] = "",
    ignore: Annotated[
        str, typer.Option("--ignore", metavar="IDS", help="All rules but these.")
    ] = "",
    torch: Annotated[
        Optional[str], typer.Option("--torch", help="Torch release the code runs on, e.g. 2.9.")
    ] = None,
    platform: Annotated[
        Optional[str], typer.Option("--platform", help="linux, windows, wsl, rocm or macos.")
    ] = None,
    json_output: options.Json = False,
    exit_zero: options.ExitZero = False,
) -> None:
    """Find memory mistakes in source, without running it."""
    from vramdoc.cli import terminal
    from vramdoc.cli.values import choice
    from vramdoc.lint import check_paths
    from vramdoc.lint.output import render

    wanted = "json" if json_output else choice("--format", output_format, FORMATS)
    result = check_paths(
        paths,
        select=_ids(select),
        ignore=_ids(ignore),
        torch_release=torch,
        platform=platform,
    )
    text = render(result, wanted)
    if text:
        terminal.show(text)
    if result.violations and not exit_zero:
        raise typer.Exit(ExitCode.FINDINGS)
    if result.unreadable and not result.files_checked:
        raise typer.Exit(ExitCode.USAGE)


def _ids(text: str) -> tuple[str, ...]:
    return tuple(part.strip() for part in text.split(",") if part.strip())
