"""Each rule against its own examples: silent on the good ones, on the marked lines of the bad ones and nowhere else."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from _pytest.mark.structures import ParameterSet

from vramdoc.lint.check import check_text
from vramdoc.lint.files import Kind, kind_by_name
from vramdoc.lint.rule import Example, Rule
from vramdoc.lint.rules import RULES
from vramdoc.lint.violation import Level, Violation


def cases(field: str) -> list[ParameterSet]:
    return [
        pytest.param(rule, example, id=f"{rule.id}-{number}")
        for rule in RULES
        for number, example in enumerate(getattr(rule, field), 1)
    ]


def violations(example: Example, rules: tuple[Rule, ...] = RULES) -> list[Violation]:
    kind = kind_by_name(Path(example.file)) or Kind.PYTHON
    return check_text(example.code.lstrip("\n"), kind, rules=rules)


def marked_lines(example: Example, rule: Rule) -> list[int]:
    lines = example.code.lstrip("\n").splitlines()
    marked = [n for n, line in enumerate(lines, 1) if re.search(rf"# {rule.id}\b", line)]
    return sorted({*marked, *example.lines})


@pytest.mark.parametrize(("rule", "example"), cases("good"))
def test_nothing_is_said_about_a_good_example(rule: Rule, example: Example) -> None:
    assert violations(example, (rule,)) == []


@pytest.mark.parametrize(("rule", "example"), cases("good"))
def test_no_other_rule_objects_to_a_good_example(rule: Rule, example: Example) -> None:
    assert violations(example) == []


@pytest.mark.parametrize(("rule", "example"), cases("bad"))
def test_a_bad_example_is_reported_at_its_marked_lines(rule: Rule, example: Example) -> None:
    expected = marked_lines(example, rule)
    assert expected, "a bad example marks the lines to be reported"
    assert [violation.line for violation in violations(example, (rule,))] == expected


def test_ids_are_stable_unique_and_sorted() -> None:
    ids = [rule.id for rule in RULES]
    assert ids == sorted(set(ids))
    assert all(re.fullmatch(r"VD\d{3}", rule_id) for rule_id in ids)


@pytest.mark.parametrize("rule", RULES, ids=lambda rule: rule.id)
def test_a_rule_explains_itself(rule: Rule) -> None:
    assert rule.bad
    assert rule.good
    assert rule.words
    assert all(text.strip() for text in (rule.title, rule.why, rule.instead, rule.name))


RESET = """
def train(net, loader, opt, crit):
    running = 0.0
    for step, (x, y) in enumerate(loader):
        loss = crit(net(x), y)
        loss.backward()
        opt.step()
        running += loss
        if step % 100 == 99:
            print(running / 100)
            running = 0.0
"""
MAPPED = """
from transformers import AutoModelForCausalLM

model = AutoModelForCausalLM.from_pretrained("checkpoint-dir")
model.lm_head.weight.data.resize_(60_000, 768)
"""


@pytest.mark.parametrize("code", [RESET, MAPPED], ids=["reset now and then", "dtype decides"])
def test_what_may_be_harmless_is_a_warning_where_the_rule_is_an_error(code: str) -> None:
    (found,) = check_text(code)
    assert found.level is Level.WARNING
    assert {rule.id: rule.level for rule in RULES}[found.id] is Level.ERROR


def test_a_second_check_of_the_same_callee_is_refused() -> None:
    rule = next(rule for rule in RULES if rule.calls)
    with pytest.raises(AssertionError, match="hide the first"):
        rule.on_call(*rule.calls)(lambda _source, _call: iter(()))
