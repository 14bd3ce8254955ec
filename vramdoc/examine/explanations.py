"""The pages of ``vramdoc explain``, whichever catalogue they come from: findings, prescriptions, settings, lint rules."""

from __future__ import annotations

from dataclasses import replace

from vramdoc.lint.page import paragraphs
from vramdoc.lint.rule import Rule
from vramdoc.lint.rules import RULES as LINT_RULES
from vramdoc.prescribe.explain import contents_page, explain
from vramdoc.prescribe.page import Page, Section


def explain_subject(
    subject: str, *, torch_release: str | None = None, platform: str | None = None
) -> Page:
    """The page of an id, an option's name or a config string.

    Raises:
        UsageError: nothing is called that.
    """
    for rule in LINT_RULES:
        if subject.upper() == rule.id or subject.lower() == rule.name:
            return lint_page(rule)
    return explain(subject, release=torch_release, platform=platform)


def lint_page(rule: Rule) -> Page:
    """What a lint rule finds, why it is wrong, and how to write it instead."""
    return Page(
        id=rule.id,
        kind="lint-rule",
        title=rule.title,
        sections=(
            Section(heading=f"Why ({rule.level})", text=paragraphs(rule.why)),
            *(Section(heading="Wrong", code=example.code.strip()) for example in rule.bad[:1]),
            *(Section(heading="Right", code=example.code.strip()) for example in rule.good[:1]),
            Section(heading="Instead", text=paragraphs(rule.instead)),
            *([Section(heading="Limits", text=paragraphs(rule.limits))] if rule.limits else []),
        ),
        data={"level": str(rule.level), "name": rule.name},
    )


def catalogue_page() -> Page:
    """Everything that has a page, lint rules included."""
    page = contents_page()
    rules = tuple(f"{rule.id} {rule.name}: {rule.title}" for rule in LINT_RULES)
    return replace(
        page,
        sections=(*page.sections, Section(heading="Lint rules", items=rules)),
        data={**page.data, "lint_rules": [rule.id for rule in LINT_RULES]},
    )
