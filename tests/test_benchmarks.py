"""What `python -m benchmarks` says about ratios that got worse, and that its page holds what was measured."""

import json
import re
from pathlib import Path

from benchmarks.regression import regressions

REPOSITORY = Path(__file__).resolve().parents[1]


def test_a_ratio_that_got_more_than_a_fifth_worse_is_named_with_both_figures() -> None:
    before = {"read": 0.80, "page": 0.20, "gone": 1.0}
    now = {"read": 0.97, "page": 0.23, "new": 9.0}
    assert regressions(before, now) == ["worse: read: 0.97, before 0.8"]


def test_what_stayed_or_got_better_is_not_named() -> None:
    assert regressions({"read": 0.80}, {"read": 0.95}) == []
    assert regressions({"read": 0.80}, {"read": 0.10}) == []


def test_the_page_shows_the_ratios_that_the_next_run_is_held_against() -> None:
    ratios = json.loads((REPOSITORY / "benchmarks" / "ratios.json").read_text(encoding="utf-8"))
    page = (REPOSITORY / "docs" / "benchmarks.md").read_text(encoding="utf-8")
    shown = dict(re.findall(r"^\| (.+?) \| ([0-9.e+-]+) \|$", page, flags=re.MULTILINE))
    assert ratios
    assert {name: f"{value:.3g}" for name, value in ratios.items()} == {
        name: shown.get(name) for name in ratios
    }
