"""Building blocks of verdicts: the three answers in short form, and facts cited from a text or computed from others."""

from __future__ import annotations

from collections.abc import Iterable

from vramdoc.crashlog.incident import Incident, Reading
from vramdoc.diagnose.verdict import Confidence, Outcome, Severity, Verdict
from vramdoc.evidence.case import Case
from vramdoc.facts import Fact, Source

THE_ERROR = (
    "the error message itself: the whole output of the failed program, from its first error on"
)


def confirmed(
    rule_id: str,
    summary: str,
    evidence: Iterable[Fact],
    *,
    confidence: Confidence = Confidence.HIGH,
    severity: Severity = Severity.ERROR,
    explains: int = 0,
    notes: Iterable[str] = (),
) -> Verdict:
    """It is this."""
    return Verdict(
        id=rule_id,
        outcome=Outcome.CONFIRMED,
        severity=severity,
        confidence=confidence,
        summary=summary,
        evidence=tuple(evidence),
        explains_bytes=max(0, explains),
        notes=tuple(note for note in notes if note),
    )


def ruled_out(
    rule_id: str,
    summary: str,
    evidence: Iterable[Fact] = (),
    *,
    confidence: Confidence = Confidence.HIGH,
    notes: Iterable[str] = (),
) -> Verdict:
    """It is not this."""
    return Verdict(
        id=rule_id,
        outcome=Outcome.RULED_OUT,
        severity=Severity.INFO,
        confidence=confidence,
        summary=summary,
        evidence=tuple(evidence),
        notes=tuple(note for note in notes if note),
    )


def undecided(
    rule_id: str,
    summary: str,
    missing: Iterable[str],
    *,
    evidence: Iterable[Fact] = (),
    severity: Severity = Severity.ERROR,
    explains: int = 0,
    notes: Iterable[str] = (),
) -> Verdict:
    """It may be this; ``missing`` would decide it. The open question about most bytes (``explains``) leads a report."""
    return Verdict(
        id=rule_id,
        outcome=Outcome.UNDECIDED,
        severity=severity,
        confidence=Confidence.LOW,
        summary=summary,
        evidence=tuple(evidence),
        missing=tuple(missing),
        explains_bytes=max(0, explains),
        notes=tuple(note for note in notes if note),
    )


def cite(value: Reading, name: str | None = None) -> Fact:
    """A reading as evidence."""
    unit = (
        "text"
        if isinstance(value.value, str)
        else "bytes"
        if value.tolerance or "yte" in value.text
        else "count"
    )
    where = f"characters {value.start}-{value.end}: {value.text!r}"
    return Fact(name or value.name, value.value, unit, Source.READ, where)


def quote(incident: Incident, name: str = "message") -> Fact:
    """The matched text of an incident as evidence, cut to a line."""
    line = " ".join(incident.text.split())
    shown = line if len(line) <= 160 else f"{line[:157]}..."
    return Fact(name, shown, "text", Source.READ, f"characters {incident.start}-{incident.end}")


def derived(name: str, value: int, formula: str, source: Source = Source.READ) -> Fact:
    """Bytes computed from other facts, with the formula as the place to look it up."""
    return Fact(name, value, "bytes", source, formula)


def text_is_silent(case: Case) -> bool:
    """Whether a crash text is all there is, and it holds no failure that is known here."""
    return (
        case.crash is not None
        and not case.crash.incidents
        and case.manifest is None
        and case.snapshot is None
    )
