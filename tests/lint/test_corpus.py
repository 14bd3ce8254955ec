"""The public collection of scripts: each true finding at its line and level, nothing on the clean ones."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from vramdoc.lint import check_paths

ROW = re.compile(r"^\| (\w+\.py) \| (\d+|-) \| (\w+) \|", re.MULTILINE)


@pytest.mark.corpus
def test_every_true_finding_is_reported_at_its_line_and_level(corpus: Path) -> None:
    rows = ROW.findall((corpus / "scripts" / "README.md").read_text(encoding="utf-8"))
    assert rows
    missed = []
    for name, line, severity in rows:
        found = check_paths([corpus / "scripts" / name]).violations
        if severity == "none":
            assert found == (), name
        elif (int(line), severity) not in {(v.line, v.level.value) for v in found}:
            missed.append((name, line, severity))
    assert missed == []


@pytest.mark.corpus
def test_nothing_is_reported_beside_the_true_finding_but_its_twin(corpus: Path) -> None:
    """kv_cat_growth has the values a line below the keys, loss_graph_kept the list a line below the sum."""
    rows = ROW.findall((corpus / "scripts" / "README.md").read_text(encoding="utf-8"))
    for name, line, severity in rows:
        if severity != "none":
            lines = {v.line for v in check_paths([corpus / "scripts" / name]).violations}
            assert lines <= {int(line), int(line) + 1}, name
