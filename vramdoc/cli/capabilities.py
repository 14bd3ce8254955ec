"""``vramdoc capabilities``: what this installation can do, for scripts and agents. Made from the code, so it cannot drift."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

from vramdoc.cli import options

if TYPE_CHECKING:
    import typer


def capabilities(json_output: options.Json = False) -> None:
    """Say what this installation can do: commands, verdicts, prescriptions, lint rules, GPUs, formats."""
    from vramdoc.cli import terminal
    from vramdoc.cli.app import app

    found = describe(app)
    if json_output:
        terminal.show(json.dumps(found, indent=2, sort_keys=True))
        return
    for name, value in found.items():
        if isinstance(value, list):
            terminal.show(f"{name}: {', '.join(map(str, value))}")
        elif isinstance(value, dict):
            terminal.show(f"{name}: {', '.join(sorted(value))}")
        else:
            terminal.show(f"{name}: {value}")


def describe(app: typer.Typer) -> dict[str, Any]:
    """Everything there is, by kind, as plain values."""
    from vramdoc import __version__
    from vramdoc.allocator.releases import RULES as RELEASES
    from vramdoc.cli.values import CACHES, WORKLOADS
    from vramdoc.diagnose.rules import RULES
    from vramdoc.lint import RULES as LINT_RULES
    from vramdoc.prescribe.catalogue import CATALOGUE as PRESCRIPTIONS
    from vramdoc.report.formats import FORMATS
    from vramdoc.virtual_gpu.catalogue import CATALOGUE as GPUS

    return {
        "schema_version": 1,
        "version": __version__,
        "commands": commands(app),
        "verdicts": sorted(rule.id for rule in RULES),
        "prescriptions": sorted(PRESCRIPTIONS),
        "lint_rules": sorted(rule.id for rule in LINT_RULES),
        "virtual_gpus": sorted(GPUS),
        "torch_releases": list(RELEASES),
        "formats": list(FORMATS),
        "workloads": list(WORKLOADS),
        "caches": list(CACHES),
    }


def commands(app: typer.Typer) -> dict[str, Any]:
    """Every command with its options, read from the Typer app itself."""
    import typer.main

    group = typer.main.get_command(app)
    return {
        name: {
            "help": (command.help or "").split("\n")[0],
            "options": sorted(o for p in command.params for o in p.opts if o.startswith("-")),
        }
        for name, command in sorted(group.commands.items())  # type: ignore[attr-defined]
    }
