"""The Typer app, and the one place where an error becomes a line on stderr and an exit code.

It knows no command's work: each command is one module here, and imports what it runs inside its function,
so that ``vramdoc --help`` loads none of it.
"""

from __future__ import annotations

import json
import os
import sys
from typing import Annotated

import typer

from vramdoc import __version__
from vramdoc.cli import (
    capabilities,
    capacity,
    compare,
    config,
    diagnose,
    diff,
    explain,
    gpus,
    lint,
    mcp_server,
    record,
)
from vramdoc.cli.exit_codes import ExitCode
from vramdoc.errors import VramdocError
from vramdoc.printable import one_line

app = typer.Typer(
    name="vramdoc",
    no_args_is_help=True,
    add_completion=True,
    pretty_exceptions_enable=False,
    rich_markup_mode=None,
    context_settings={
        "help_option_names": ["-h", "--help"],
        "auto_envvar_prefix": "VRAMDOC",
        "max_content_width": 100,
    },
    help="Why did this GPU run out of memory, and which change provably fixes it?",
    epilog="Exit codes: 0 healthy, 1 findings, 2 wrong usage or unreadable input, 3 could not decide, 130 interrupted.",
)
app.command("diagnose")(diagnose.diagnose)
app.command("compare-alloc-configs")(compare.compare_alloc_configs)
app.command(
    "record", context_settings={"allow_interspersed_args": False, "ignore_unknown_options": False}
)(record.record)
app.command("capacity")(capacity.capacity)
app.command("lint")(lint.lint)
app.command("diff")(diff.diff)
app.command("explain")(explain.explain)
app.command("gpus")(gpus.gpus)
app.command("mcp")(mcp_server.mcp)
app.command("capabilities")(capabilities.capabilities)


def _version(value: bool) -> None:
    if value:
        typer.echo(f"vramdoc {__version__}")
        raise typer.Exit


@app.callback()
def options(
    context: typer.Context,
    version: Annotated[  # noqa: ARG001 - Typer hands it to the callback
        bool,
        typer.Option(
            "--version",
            callback=_version,
            is_eager=True,
            allow_from_autoenv=False,  # images pin a release in VRAMDOC_VERSION
            help="Print the version.",
        ),
    ] = False,
    debug: Annotated[  # noqa: ARG001 - read from the arguments by run(), before anything can fail
        bool, typer.Option("--debug", help="Show the traceback of an error.")
    ] = False,
) -> None:
    """Why did this GPU run out of memory, and which change provably fixes it?"""
    context.default_map = config.defaults_from_pyproject(config.flags_of(context))


def run() -> None:
    """Run the command line and end the process with its exit code."""
    try:
        app(standalone_mode=True, prog_name="vramdoc")
    except VramdocError as error:
        if _debugging():
            raise
        _complain(error)
        sys.exit(ExitCode.USAGE)
    except KeyboardInterrupt:
        sys.exit(ExitCode.INTERRUPTED)
    except BrokenPipeError:
        # The reader (`| head`) has gone: that is no error.
        from vramdoc.cli.terminal import leave_stdout

        leave_stdout()
        sys.exit(ExitCode.HEALTHY)


def _debugging() -> bool:
    return "--debug" in sys.argv[1:] or os.environ.get("VRAMDOC_DEBUG", "") not in {"", "0"}


def _complain(error: VramdocError) -> None:
    """One line on stderr; as JSON where the command was asked for JSON."""
    if "--json" in sys.argv[1:]:
        body = {
            "schema_version": 1,
            "error": {"message": error.message, "hint": error.hint, "kind": type(error).__name__},
        }
        print(json.dumps(body), file=sys.stderr)
        return
    print(one_line(f"vramdoc: {error}"), file=sys.stderr)
