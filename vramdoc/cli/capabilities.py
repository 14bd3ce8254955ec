"""``vramdoc capabilities``: what this installation can do, for scripts and agents. Made from the code, so it cannot drift."""

from __future__ import annotations

import json
from typing import Any

import typer

from vramdoc.cli import options


def capabilities(context: typer.Context, json_output: options.Json = False) -> None:
    """Say what this installation can do: commands, verdicts, prescriptions, lint rules, GPUs, formats."""
    from vramdoc.cli import terminal

    found = describe(context.find_root().command)
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


def describe(group: Any) -> dict[str, Any]:
    """Everything there is, by kind, as plain values. ``group`` is the command line itself, a ``typer.core.TyperGroup``."""
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
        "commands": commands(group),
        "verdicts": sorted(rule.id for rule in RULES),
        "prescriptions": sorted(PRESCRIPTIONS),
        "lint_rules": sorted(rule.id for rule in LINT_RULES),
        "virtual_gpus": sorted(GPUS),
        "torch_releases": list(RELEASES),
        "formats": list(FORMATS),
        "workloads": list(WORKLOADS),
        "caches": list(CACHES),
    }


def commands(group: Any) -> dict[str, Any]:
    """Every command with its options, read from the command line itself."""
    return {
        name: {
            "help": (command.help or "").split("\n")[0],
            "options": sorted(o for p in command.params for o in p.opts if o.startswith("-")),
        }
        for name, command in sorted(group.commands.items())
    }
