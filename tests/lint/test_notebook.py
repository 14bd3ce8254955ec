"""Notebooks: their code cells are checked, and a finding stands at its line of the file."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from vramdoc.lint import check_paths
from vramdoc.lint.files import CannotRead
from vramdoc.lint.notebook import python_of

LATE = 'os.environ["PYTORCH_CUDA_ALLOC_CONF"] = "max_split_size_mb:64"'


def cell(source: str, kind: str = "code") -> dict[str, Any]:
    lines = source.splitlines(keepends=True)
    outputs = [{"name": "stdout", "output_type": "stream", "text": lines}]
    return {"cell_type": kind, "outputs": outputs, "source": lines}


def notebook(*cells: dict[str, Any], language: str = "python") -> str:
    """As Jupyter saves it: an indent of 1, a string a line, outputs before the source."""
    metadata = {"language_info": {"name": language}}
    return json.dumps(
        {"cells": list(cells), "metadata": metadata, "nbformat": 4}, indent=1, sort_keys=True
    )


def found(folder: Path, text: str) -> list[tuple[str, str]]:
    """Rule and line of the file for each finding."""
    path = folder / "study.ipynb"
    path.write_text(text, encoding="utf-8")
    return [(v.id, text.splitlines()[v.line - 1]) for v in check_paths([path]).violations]


def test_a_finding_is_at_its_line_of_the_file_across_cells(tmp_path: Path) -> None:
    text = notebook(
        cell("# Study", "markdown"),
        cell('import os\nimport torch\nx = torch.zeros(8, device="cuda")'),
        cell(f"print(x)\n{LATE}\nprint(x)"),
    )
    ((rule, line),) = found(tmp_path, text)
    assert rule == "VD001"
    assert json.loads(line.strip().removesuffix(",")) == LATE + "\n"


def test_lines_and_cells_for_ipython_do_not_hide_the_rest(tmp_path: Path) -> None:
    text = notebook(
        cell("%%bash\nexport X=\"y\"\npython -c 'print(1'"),
        cell(
            "%load_ext autoreload\n!pip install torch\nfiles = !ls\ntorch.load?\nimport os, torch"
        ),
        cell(
            f'%%time\nif True:\n    %matplotlib inline\nx = torch.zeros(8, device="cuda")\n{LATE}'
        ),
    )
    assert [rule for rule, _ in found(tmp_path, text)] == ["VD001"]


def test_a_comment_in_a_cell_switches_a_rule_off(tmp_path: Path) -> None:
    text = notebook(
        cell(
            f'import os, torch\nx = torch.zeros(8, device="cuda")\n{LATE}  # vramdoc: ignore[VD001]'
        )
    )
    assert found(tmp_path, text) == []


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("{}", "not a notebook"),
        ("[1]", "not a notebook"),
        ("print(1)", "not a notebook"),
        (notebook(cell("1 + 1"), language="julia"), "in julia"),
        (json.dumps(json.loads(notebook(cell("a\nb")))), "not laid out"),
    ],
)
def test_what_cannot_be_read_is_said_and_not_called_clean(
    tmp_path: Path, text: str, reason: str
) -> None:
    path = tmp_path / "study.ipynb"
    path.write_text(text, encoding="utf-8")
    result = check_paths([path])
    assert result.files_checked == 0
    assert [reason in u.reason for u in result.unreadable] == [True]


@given(st.lists(st.text(st.characters(codec="utf-8")), max_size=4))
def test_every_line_of_code_is_found_again(sources: list[str]) -> None:
    try:
        python = python_of(notebook(*map(cell, sources)))
    except CannotRead:
        return  # a line break that str.splitlines knows and JSON does not write
    assert all(
        line in python or "%" in line or "!" in line or "?" in line
        for line in "\n".join(sources).splitlines()
    )
