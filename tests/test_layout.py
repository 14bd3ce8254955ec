"""House rules that no linter has."""

from __future__ import annotations

import ast
import sys
from pathlib import Path

import pytest

REPOSITORY = Path(__file__).resolve().parents[1]
MODULES = sorted((REPOSITORY / "vramdoc").rglob("*.py"))
FORBIDDEN_NAMES = {"utils", "util", "helpers", "helper", "manager", "common", "misc"}


@pytest.mark.parametrize("path", MODULES, ids=lambda p: str(p.relative_to(REPOSITORY)))
def test_a_module_opens_with_what_it_is(path: Path) -> None:
    docstring = ast.get_docstring(ast.parse(path.read_text(encoding="utf-8")))
    assert docstring, f"{path} has no docstring"


def test_no_module_is_named_for_nothing() -> None:
    assert [path for path in MODULES if path.stem in FORBIDDEN_NAMES] == []


def test_nothing_names_a_path_of_this_machine() -> None:
    suffixes = {".py", ".md", ".toml", ".c", ".h", ".sh", ".yml"}
    tracked = [
        path
        for folder in ("vramdoc", "tests", "examples", "docs", "benchmarks")
        for path in (REPOSITORY / folder).rglob("*")
        if path.suffix in suffixes and path.is_file()
    ]
    roots = [str(REPOSITORY), sys.prefix]
    found = [
        f"{path}: {root}"
        for path in tracked
        for root in roots
        if root in path.read_text(encoding="utf-8", errors="replace")
    ]
    assert found == []
