"""``python -m tests.cases [FOLDER]``: the evaluation as a table; exit 1 when an answer is wrong."""

from __future__ import annotations

import sys
from pathlib import Path

from tests.cases.evaluation import evaluate, table

folder = (
    Path(sys.argv[1])
    if len(sys.argv) > 1
    else Path(__file__).resolve().parents[3] / "shared" / "cases"
)
results = [evaluate(case.parent) for case in sorted(folder.glob("*/case.toml"))]
print(table(results))
sys.exit(
    0 if results and all(r.is_right and not r.unsaid and not r.forbidden for r in results) else 1
)
