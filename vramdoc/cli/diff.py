"""``vramdoc diff A B``: what grew between two recordings or snapshots."""

from __future__ import annotations

import sys
from typing import Annotated

import typer

from vramdoc.cli import options


def diff(
    before: Annotated[str, typer.Argument(metavar="A", help="A recording folder or a snapshot.")],
    after: Annotated[str, typer.Argument(metavar="B", help="The one to compare with it.")],
    json_output: options.Json = False,
    include_private: options.IncludePrivate = False,
) -> None:
    """Say what grew between two recordings or snapshots: configs and versions first, then call sites."""
    from vramdoc.cli import publish, terminal
    from vramdoc.examine.comparison import difference
    from vramdoc.report.difference import render_difference, render_difference_json

    found = publish.cleaned(difference(before, after), include_private=include_private)
    if json_output:
        terminal.show(render_difference_json(found))
        return
    screen = terminal.terminal_of(sys.stdout)
    terminal.show(
        render_difference(
            found,
            **screen.shape,
        )
    )
