"""Verdicts: what a rule answers about one case. A verdict without evidence, or an open one without a reason, cannot be built.

This module knows no rule and no way to show a verdict.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum

from vramdoc.facts import Fact


class Outcome(str, Enum):
    """The three answers."""

    CONFIRMED = "confirmed"
    RULED_OUT = "ruled_out"
    UNDECIDED = "undecided"

    def __str__(self) -> str:
        return self.value


class Severity(str, Enum):
    """How bad it is for the person, were it true. Apart from how sure we are."""

    ERROR = "error"
    WARNING = "warning"
    INFO = "info"

    def __str__(self) -> str:
        return self.value


class Confidence(str, Enum):
    """How sure the rule is of its outcome, given the evidence."""

    HIGH = "high"
    MEDIUM = "medium"
    LOW = "low"

    def __str__(self) -> str:
        return self.value


@dataclass(frozen=True, slots=True, kw_only=True)
class Verdict:
    """One rule's answer on one case.

    Raises:
        ValueError: confirmed without evidence, or undecided without saying what is missing.
    """

    id: str
    """A stable kebab-case id of design section 5, for example ``"true-capacity"``."""
    outcome: Outcome
    severity: Severity
    confidence: Confidence
    summary: str
    """One or two sentences a tired person understands, with the bytes that matter."""
    evidence: tuple[Fact, ...] = ()
    missing: tuple[str, ...] = ()
    """For an undecided verdict: what would decide it, each as a noun phrase ("an allocator snapshot")."""
    explains_bytes: int = 0
    """Bytes of the shortage that this cause accounts for; orders contributors and picks the primary one."""
    notes: tuple[str, ...] = ()
    """Further sentences: a hint of torch's that does not apply, what was not looked at."""

    def __post_init__(self) -> None:
        if self.outcome is Outcome.CONFIRMED and not self.evidence:
            raise ValueError(f"{self.id}: confirmed without evidence")
        if self.outcome is Outcome.UNDECIDED and not self.missing:
            raise ValueError(f"{self.id}: undecided without saying what is missing")
