"""Defaults of the options from ``[tool.vramdoc]`` in the nearest pyproject.toml.

``VRAMDOC_<COMMAND>_<OPTION>`` variables are Click's own doing and win over these; flags win over both.
"""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

from vramdoc.errors import UsageError


def defaults_from_pyproject(start: Path | None = None) -> dict[str, Any]:
    """Return ``{"diagnose": {"gpu": "rtx4090"}, ...}`` from the table ``[tool.vramdoc.diagnose]``.

    Raises:
        UsageError: the file holds TOML that cannot be read.
    """
    here = start or Path.cwd()
    for folder in (here, *here.parents):
        path = folder / "pyproject.toml"
        if path.is_file():
            return _table(path)
    return {}


def _table(path: Path) -> dict[str, Any]:
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
    commands = {key: value for key, value in tool.items() if isinstance(value, dict)}
    return {
        command: {**_keys(shared), **_keys(commands.get(command, {}))}
        for command in {*commands, "diagnose", "compare-alloc-configs", "capacity", "lint", "diff"}
    }


def _at(table: dict[str, Any], key: str) -> dict[str, Any]:
    value = table.get(key, {})
    if not isinstance(value, dict):
        raise ValueError(f"{key} is no table")  # noqa: TRY004 - a wrong file, not a wrong call
    return value


def _keys(table: dict[str, Any]) -> dict[str, Any]:
    return {key.replace("-", "_"): value for key, value in table.items()}
