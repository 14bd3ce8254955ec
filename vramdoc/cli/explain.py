"""``vramdoc explain``: what a finding or prescription means; what a config string really does."""

from __future__ import annotations

import json
import sys
from typing import Annotated, Optional

import typer

from vramdoc.cli import options


def explain(
    subject: Annotated[
        Optional[str],
        typer.Argument(
            metavar="ID|CONF",
            help="A finding (true-capacity), a prescription (RX-EXPANDABLE), a lint rule (VD001) or a config string.",
        ),
    ] = None,
    torch: Annotated[
        Optional[str],
        typer.Option("--torch", help="Torch release to judge a config for, e.g. 2.9."),
    ] = None,
    platform: Annotated[
        Optional[str], typer.Option("--platform", help="linux, windows, wsl, rocm or macos.")
    ] = None,
    listing: Annotated[
        bool, typer.Option("--list", help="List everything that has a page.")
    ] = False,
    json_output: options.Json = False,
) -> None:
    """Say what a finding means, or what each option of a config string does there."""
    from vramdoc.cli import terminal
    from vramdoc.errors import UsageError
    from vramdoc.examine.explanations import catalogue_page, explain_subject

    if listing:
        page = catalogue_page()
    elif subject is None:
        raise UsageError("nothing to explain", "give an id or a config string, or --list")
    else:
        page = explain_subject(subject, torch_release=torch, platform=platform)
    if json_output:
        terminal.show(json.dumps(page.to_json(), indent=2))
        return
    screen = terminal.terminal_of(sys.stdout)
    terminal.show(page.render(width=screen.width, colour=screen.colour))
