"""A rule's page: what ``vramdoc explain VD001`` shows and docs/lint.md holds. Markdown out of the rule's own texts."""

from __future__ import annotations

import textwrap

from vramdoc.errors import UsageError
from vramdoc.lint.rule import Example, Rule
from vramdoc.lint.rules import RULES

_LANGUAGES = {".py": "python", ".sh": "sh", ".yaml": "yaml", ".env": "sh"}


def rule_page(rule_id: str) -> str:
    """The page of one rule, by its id or name.

    Raises:
        UsageError: no rule is called that.
    """
    for rule in RULES:
        if rule_id.upper() == rule.id or rule_id.lower() == rule.name:
            return page_of(rule)
    raise UsageError(f"no lint rule {rule_id}", f"ids go from {RULES[0].id} to {RULES[-1].id}")


def page_of(rule: Rule, heading: str = "#") -> str:
    """The page of ``rule``, its title under ``heading``."""
    parts = [
        f"{heading} {rule.id} {rule.name}",
        f"{rule.title[0].upper()}{rule.title[1:]}. Level: {rule.level}.",
        paragraphs(rule.why),
        "Wrong:",
        *map(_block, rule.bad),
        "Right:",
        *map(_block, rule.good),
        paragraphs(rule.instead),
    ]
    if rule.limits:
        parts.append(f"Not seen, or seen wrongly: {paragraphs(rule.limits)}")
    return "\n\n".join(parts) + "\n"


def paragraphs(text: str) -> str:
    """Indented, wrapped text as one line a paragraph."""
    return "\n\n".join(
        " ".join(part.split()) for part in textwrap.dedent(text).strip().split("\n\n")
    )


def _block(example: Example) -> str:
    suffix = "." + example.file.rpartition(".")[2] if "." in example.file else ""
    language = _LANGUAGES.get(suffix, "dockerfile" if "ocker" in example.file else "")
    return f"```{language}\n{example.code.strip()}\n```"
