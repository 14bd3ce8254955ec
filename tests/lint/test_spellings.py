"""The same mistakes, and the same innocence, in many spellings: the programs of ``spellings/*.md``."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from _pytest.mark.structures import ParameterSet

from vramdoc.lint.check import check_text
from vramdoc.lint.files import Kind, kind_by_name

FOLDER = Path(__file__).parent / "spellings"
MARK = re.compile(r"[ \t]+# (VD\d{3}(?: VD\d{3})*)$", re.MULTILINE)
BLOCK = re.compile(r"^## (.+?)\n\n```(\S+) ?(\S*)\n(.*?)^```$", re.MULTILINE | re.DOTALL)


def programs(*, marked: bool) -> list[ParameterSet]:
    found = []
    for path in sorted(FOLDER.glob("*.md")):
        for title, _, name, code in BLOCK.findall(path.read_text(encoding="utf-8")):
            if bool(MARK.search(code)) is marked:
                found.append(pytest.param(name, code, id=f"{path.stem}: {title}"))
    return found


def reported(name: str, code: str) -> list[tuple[int, str]]:
    kind = kind_by_name(Path(name or "example.py")) or Kind.PYTHON
    return sorted({(v.line, v.id) for v in check_text(MARK.sub("", code), kind)})


@pytest.mark.parametrize(("name", "code"), programs(marked=False))
def test_no_rule_objects(name: str, code: str) -> None:
    assert reported(name, code) == []


@pytest.mark.parametrize(("name", "code"), programs(marked=True))
def test_exactly_the_marked_lines_are_reported(name: str, code: str) -> None:
    expected = [
        (number, rule_id)
        for number, line in enumerate(code.splitlines(), 1)
        for match in [MARK.search(line)]
        if match
        for rule_id in match[1].split()
    ]
    assert reported(name, code) == expected
