"""The 38 public failure texts: parsed to the byte, the cause as established, every sentence said that must be."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.cases.evaluation import Result, evaluate

pytestmark = pytest.mark.corpus


@pytest.fixture(scope="module")
def results(corpus: Path) -> list[Result]:
    return [evaluate(case.parent) for case in sorted(corpus.glob("cases/*/case.toml"))]


def test_there_are_cases(results: list[Result]):
    assert len(results) >= 38


def test_every_printed_figure_is_parsed_to_the_byte(results: list[Result]):
    assert {
        r.name: (r.figures_parsed, r.figures_printed)
        for r in results
        if r.figures_parsed < r.figures_printed
    } == {}


def test_the_primary_cause_is_the_established_one(results: list[Result]):
    assert {r.name: (r.expected, r.answered) for r in results if not r.is_right} == {}


def test_no_answer_is_confidently_wrong(results: list[Result]):
    assert [r.name for r in results if r.is_confidently_wrong] == []


def test_every_sentence_that_must_be_said_is_in_the_report(results: list[Result]):
    assert {r.name: r.unsaid for r in results if r.unsaid} == {}


def test_no_sentence_that_must_not_be_said_is_in_the_report(results: list[Result]):
    assert {r.name: r.forbidden for r in results if r.forbidden} == {}
