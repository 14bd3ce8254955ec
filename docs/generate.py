"""Make the pages that come from the code: the command reference and the man page.

python docs/generate.py          write them
python docs/generate.py --check  exit 1 where one is out of date
"""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

import typer.main

from vramdoc.cli.app import app

DOCS = Path(__file__).resolve().parent


def commands() -> list[tuple[str, Any]]:
    """Every command with its Click object, by name."""
    group = typer.main.get_command(app)
    return sorted(group.commands.items())


def reference() -> str:
    """The command reference as Markdown."""
    lines = [
        "# Command reference",
        "",
        "Made from the code by `python docs/generate.py`. Every option can also be set in `[tool.vramdoc.<command>]` of",
        "`pyproject.toml`, or by a variable `VRAMDOC_<COMMAND>_<OPTION>`; a flag wins over both.",
        "",
        "Exit codes: 0 healthy · 1 findings · 2 wrong usage or unreadable input · 3 could not decide · 130 interrupted.",
    ]
    for name, command in commands():
        lines += [
            "",
            f"## vramdoc {name}",
            "",
            first_line(command.help),
            "",
            f"`{usage(name, command)}`",
            "",
        ]
        lines += ["| option | meaning | default |", "|---|---|---|"]
        lines += [f"| {flags(p)} | {cell(p.help)} | {cell(default(p))} |" for p in shown(command)]
    return "\n".join(lines) + "\n"


def man_page() -> str:
    """The man page as troff."""
    lines = [
        '.TH VRAMDOC 1 "" "vramdoc" "User Commands"',
        ".SH NAME",
        "vramdoc \\- why a GPU ran out of memory, and which change provably fixes it",
        ".SH SYNOPSIS",
        *(f".B vramdoc {roff(name)}\n.br" for name, _ in commands()),
        ".SH COMMANDS",
    ]
    for name, command in commands():
        lines += [".SS " + roff(usage(name, command)), roff(first_line(command.help))]
        for option in shown(command):
            lines += [".TP", ".B " + roff(flags(option, plain=True)), roff(option.help or "")]
    lines += [
        ".SH EXIT STATUS",
        "0 healthy, 1 findings, 2 wrong usage or unreadable input, 3 could not decide, 130 interrupted.",
        ".SH ENVIRONMENT",
        ".B NO_COLOR, FORCE_COLOR, VRAMDOC_<COMMAND>_<OPTION>",
    ]
    return "\n".join(lines) + "\n"


def shown(command: Any) -> list[Any]:
    """The parameters that help shows."""
    return [p for p in command.params if not getattr(p, "hidden", False)]


def is_argument(parameter: Any) -> bool:
    """Whether a parameter is given by position."""
    return not parameter.opts[0].startswith("-")


def first_line(text: str | None) -> str:
    """The first line of a help text."""
    return (text or "").strip().split("\n")[0]


def usage(name: str, command: Any) -> str:
    """The usage line of a command."""
    arguments = " ".join(p.metavar or p.name.upper() for p in command.params if is_argument(p))
    return f"vramdoc {name} [OPTIONS] {arguments}".strip()


def flags(option: Any, *, plain: bool = False) -> str:
    """How a parameter is written on the command line."""
    if is_argument(option):
        return option.metavar or option.name.upper()
    names = ", ".join(option.opts)
    takes = "" if option.is_flag else f" {option.metavar or option.name.upper()}"
    return f"{names}{takes}" if plain else f"`{names}{takes}`"


def default(option: Any) -> str:
    """A parameter's default, where saying it helps."""
    value = option.default
    return (
        ""
        if value in (None, False, "", ()) or not isinstance(value, (str, int, float, Path))
        else f"`{value}`"
    )


def cell(text: str | None) -> str:
    """Text for a Markdown table."""
    return (text or "").replace("|", "\\|")


def roff(text: str) -> str:
    """Text for troff."""
    return text.replace("\\", "\\\\").replace("-", "\\-")


PAGES = {DOCS / "reference.md": reference, DOCS / "vramdoc.1": man_page}

if __name__ == "__main__":
    stale = [
        path
        for path, make in PAGES.items()
        if not path.exists() or path.read_text(encoding="utf-8") != make()
    ]
    if "--check" in sys.argv:
        sys.exit(f"out of date: {', '.join(p.name for p in stale)}" if stale else 0)
    for path in stale:
        path.write_text(PAGES[path](), encoding="utf-8")
