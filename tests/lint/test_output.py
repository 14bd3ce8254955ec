"""The four formats over the same small results, the empty one too; and the pages of the rules."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from vramdoc.errors import UsageError
from vramdoc.lint import RULES, Level, LintResult, Unreadable, Violation, rule_page
from vramdoc.lint.handbook import handbook
from vramdoc.lint.output import FORMATS, render

EMPTY = LintResult(violations=(), files_checked=0)
FOUND = LintResult(
    violations=(
        Violation(
            id="VD101",
            level=Level.ERROR,
            path="a b/x,y.py",
            line=3,
            column=5,
            end_line=4,
            message="100% wrong:\nyes",
        ),
        Violation(
            id="VD506", level=Level.INFO, path="z.py", line=1, column=1, end_line=1, message="low"
        ),
    ),
    files_checked=3,
    unreadable=(Unreadable(path="bad.py", reason="not Python 3.11: invalid syntax", line=7),),
)


def test_text_is_one_line_each_and_a_count() -> None:
    assert render(FOUND, "text").splitlines()[0] == r"a b/x,y.py:3:5: error VD101 100% wrong:\nyes"
    assert render(FOUND, "text").splitlines()[1:] == [
        "z.py:1:1: info VD506 low",
        "bad.py:7: not checked: not Python 3.11: invalid syntax",
        "3 files checked: 1 error, 1 info; 1 file not checked",
    ]
    assert render(EMPTY, "text") == "0 files checked: nothing found"


def test_json_keeps_its_contract() -> None:
    document = json.loads(render(FOUND, "json"))
    assert document["schema_version"] == 1
    assert document["violations"][0] == {
        "id": "VD101",
        "level": "error",
        "path": "a b/x,y.py",
        "line": 3,
        "column": 5,
        "end_line": 4,
        "message": "100% wrong:\nyes",
    }
    assert document["unreadable"] == [
        {"path": "bad.py", "line": 7, "reason": "not Python 3.11: invalid syntax"}
    ]
    assert json.loads(render(EMPTY, "json"))["violations"] == []


def test_sarif_names_each_rule_once_and_points_at_it() -> None:
    (run,) = json.loads(render(FOUND, "sarif"))["runs"]
    rules = run["tool"]["driver"]["rules"]
    assert [rule["id"] for rule in rules] == ["VD101", "VD506"]
    for result in run["results"]:
        assert rules[result["ruleIndex"]]["id"] == result["ruleId"]
    assert [result["level"] for result in run["results"]] == ["error", "note"]
    assert len(run["invocations"][0]["toolExecutionNotifications"]) == 1
    assert json.loads(render(EMPTY, "sarif"))["runs"][0]["results"] == []


def test_github_escapes_what_would_end_a_command_or_a_property() -> None:
    lines = render(FOUND, "github").splitlines()
    assert (
        lines[0]
        == "::error title=VD101,file=a b/x%2Cy.py,line=3,col=5,endLine=4::100%25 wrong:%0Ayes"
    )
    assert lines[1].startswith("::notice ")
    assert lines[2].startswith("::warning file=bad.py,line=7::")
    assert render(EMPTY, "github") == ""


@pytest.mark.parametrize("name", FORMATS)
def test_a_file_name_steers_no_terminal_and_orders_no_ci_runner(name: str) -> None:
    path = "a\x1b[31m\n::error file=x::\u202ey.py"
    found = Violation(
        id="VD101", level=Level.ERROR, path=path, line=1, column=1, end_line=1, message=path
    )
    unread = Unreadable(path=path, reason=path)
    text = render(LintResult(violations=(found,), files_checked=1, unreadable=(unread,)), name)
    assert "\x1b" not in text
    assert "\u202e" not in text
    assert not [line for line in text.splitlines() if line.startswith("::error file=x")]


@pytest.mark.parametrize("name", FORMATS)
def test_a_format_is_a_pure_function(name: str) -> None:
    assert render(FOUND, name) == render(FOUND, name)


@pytest.mark.parametrize("rule", RULES, ids=lambda rule: rule.id)
def test_a_rule_is_found_by_id_and_by_name(rule: object) -> None:
    for name in (rule.id, rule.id.lower(), rule.name):
        page = rule_page(name)
        assert rule.id in page
        assert "Wrong:" in page
        assert "Right:" in page


def test_an_unknown_rule_is_a_usage_error() -> None:
    with pytest.raises(UsageError):
        rule_page("VD999")


def test_the_document_is_current() -> None:
    document = Path(__file__).resolve().parents[2] / "docs" / "lint.md"
    assert document.read_text(encoding="utf-8") == handbook(), (
        "python -m vramdoc.lint.handbook docs/lint.md"
    )
