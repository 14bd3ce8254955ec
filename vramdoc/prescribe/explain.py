"""What ``vramdoc explain`` says: a finding, a prescription or an allocator setting as a page, made from the rules and the catalogue.

The pages under docs/findings are the same pages, so they cannot say anything else.
"""

from __future__ import annotations

from collections.abc import Iterator

from vramdoc.allocator.options import KEYS
from vramdoc.diagnose.rule import Rule
from vramdoc.diagnose.rules import RULES
from vramdoc.errors import UsageError
from vramdoc.prescribe.catalogue import CATALOGUE
from vramdoc.prescribe.explain_setting import setting_page
from vramdoc.prescribe.page import Page, Section
from vramdoc.prescribe.remedy import Remedy
from vramdoc.prescribe.snippets import CUDA_VARIABLE, environment_snippets, settings_text

_RULES = {rule.id: rule for rule in RULES}


def explain(subject: str, *, release: str | None = None, platform: str | None = None) -> Page:
    """The page of ``subject``: a finding's id, a prescription's id, an option's name or a settings string.

    Raises:
        UsageError: nothing is called that, or the release or platform is not known.
    """
    if subject.lower() in _RULES:
        return finding_page(_RULES[subject.lower()])
    if subject.upper() in CATALOGUE:
        return prescription_page(CATALOGUE[subject.upper()])
    if ":" in subject or "=" in subject or subject in KEYS:
        return setting_page(subject, release=release, platform=platform)
    raise UsageError(
        f"nothing is called {subject}",
        "vramdoc explain --list names every finding and prescription; a settings string has the form key:value",
    )


def contents_page() -> Page:
    """Everything that has a page."""
    return Page(
        id="",
        kind="contents",
        title="What vramdoc explain knows",
        sections=(
            Section(heading="Findings", items=tuple(f"{rule.id}: {rule.title}" for rule in RULES)),
            Section(
                heading="Prescriptions",
                items=tuple(f"{remedy.id}: {remedy.title}" for remedy in CATALOGUE.values()),
            ),
            Section(heading="Allocator options", items=tuple(KEYS)),
        ),
        data={
            "findings": [rule.id for rule in RULES],
            "prescriptions": list(CATALOGUE),
            "options": list(KEYS),
        },
    )


def finding_page(rule: Rule) -> Page:
    """What a verdict means, how it is decided, and what helps."""
    remedies = [CATALOGUE[remedy_id] for remedy_id in rule.remedies]
    return Page(
        id=rule.id,
        kind="finding",
        title=rule.title,
        sections=(
            Section(heading="What it means", text=rule.meaning),
            Section(heading="How it is decided", text=rule.how_decided),
            Section(heading="Not to be confused with", text=rule.not_to_confuse_with),
            Section(
                heading="What helps",
                items=tuple(f"{remedy.id}: {remedy.change}" for remedy in remedies),
            ),
            Section(heading="References", items=rule.references),
        ),
        data={"remedies": list(rule.remedies), "references": list(rule.references)},
    )


def prescription_page(remedy: Remedy) -> Page:
    """A change, what it costs, where it does not work and how it is checked."""
    return Page(
        id=remedy.id,
        kind="prescription",
        title=remedy.title,
        sections=tuple(_prescription_sections(remedy)),
        data={"serves": list(remedy.serves), "settings": dict(remedy.settings)},
    )


def _prescription_sections(remedy: Remedy) -> Iterator[Section]:
    yield Section(heading="The change", text=remedy.change)
    yield Section(heading="Serves", items=remedy.serves)
    yield Section(heading="What to expect", text=remedy.effect)
    yield Section(heading="Risk", text=remedy.risk)
    if remedy.limits:
        yield Section(heading="Where it does not work", text=remedy.limits)
    yield Section(heading="How it is verified", text=remedy.verify)
    for place, text in _snippets(remedy).items():
        yield Section(heading=place, code=text, language=place)


def _snippets(remedy: Remedy) -> dict[str, str]:
    variables = {name: value.format(idle_gpu="1") for name, value in remedy.environment.items()}
    if remedy.settings:
        variables[CUDA_VARIABLE] = settings_text(remedy.settings)
    snippets = environment_snippets(variables) if variables else {}
    if remedy.python:
        snippets["python"] = remedy.python
    if remedy.command_line:
        snippets["bash"] = "\n".join(filter(None, (remedy.command_line, snippets.get("bash", ""))))
    return snippets
