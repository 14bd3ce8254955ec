"""Defaults of the options: from ``[tool.vramdoc]`` in the nearest pyproject.toml, and from variables.

Both spell an option as its flag is spelled: ``format`` or ``VRAMDOC_DIAGNOSE_FORMAT``, whatever the parameter behind it is
called. A variable wins over the file, a flag over both.
"""

from __future__ import annotations

import difflib
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from vramdoc.errors import UsageError

if TYPE_CHECKING:
    import typer

Flags = Mapping[str, Mapping[str, str]]
"""By command: a flag without its dashes, and the parameter's name."""


def flags_of(context: typer.Context) -> Flags:
    """The flags of every command below ``context``; each option's variable is named after its first one."""
    found: dict[str, dict[str, str]] = {}
    for command, group in context.command.commands.items():  # type: ignore[attr-defined]  # a group
        found[command] = {}
        for option in group.params:
            spelled = [name[2:] for name in option.opts if name.startswith("--")]
            found[command] |= dict.fromkeys(spelled, option.name)
            if spelled:
                words = ("vramdoc", command, spelled[0])
                option.envvar = "_".join(words).replace("-", "_").upper()
    return found


def defaults_from_pyproject(flags: Flags, start: Path | None = None) -> dict[str, Any]:
    """Return ``{"diagnose": {"gpu": "rtx4090"}, ...}``, by parameter name, from the table ``[tool.vramdoc.diagnose]``.

    Raises:
        UsageError: the file holds TOML that cannot be read, or a key that is no option.
    """
    here = start or Path.cwd()
    for folder in (here, *here.parents):
        path = folder / "pyproject.toml"
        if path.is_file():
            return _table(path, flags)
    return {}


def _table(path: Path, flags: Flags) -> dict[str, Any]:
    try:
        text = path.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError):
        return {}
    if "[tool.vramdoc" not in text:
        return {}  # nothing of ours: no TOML parser on the start-up path
    if sys.version_info >= (3, 11):
        import tomllib
    else:
        import tomli as tomllib
    try:
        tool = _at(_at(tomllib.loads(text), "tool"), "vramdoc")
    except (ValueError, RecursionError) as error:
        raise UsageError(
            f"{path.name} cannot be read: {error}", "mend it, or run elsewhere"
        ) from error
    shared = {key: value for key, value in tool.items() if not isinstance(value, dict)}
    own = {key: value for key, value in tool.items() if isinstance(value, dict)}
    _refuse_unknown("tool.vramdoc", shared, {flag for known in flags.values() for flag in known})
    _refuse_unknown("tool.vramdoc", own, set(flags))
    for command, table in own.items():
        _refuse_unknown(f"tool.vramdoc.{command}", table, set(flags[command]))
    return {
        command: {
            known[flag]: value
            for flag, value in (_dashed(shared) | _dashed(own.get(command, {}))).items()
            if flag in known
        }
        for command, known in flags.items()
    }


def _at(table: dict[str, Any], key: str) -> dict[str, Any]:
    value = table.get(key, {})
    if not isinstance(value, dict):
        raise ValueError(f"{key} is no table")  # noqa: TRY004 - a wrong file, not a wrong call
    return value


def _dashed(table: Mapping[str, Any]) -> dict[str, Any]:
    return {key.replace("_", "-"): value for key, value in table.items()}


def _refuse_unknown(where: str, table: Mapping[str, Any], known: set[str]) -> None:
    for key in _dashed(table):
        if key not in known:
            near = difflib.get_close_matches(key, sorted(known), n=1)
            hint = f"did you mean {near[0]}?" if near else "see vramdoc --help"
            raise UsageError(f"pyproject.toml: [{where}] knows no {key}", hint)
