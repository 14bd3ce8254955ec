"""Report: everything a renderer sees. All numbers are computed before; a renderer only words and places them.

It does not know how anything was found out, nor who will read it.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from vramdoc.diagnose.verdict import Outcome, Severity, Verdict
from vramdoc.evidence.case import Case
from vramdoc.facts import Fact
from vramdoc.prescribe.prescription import Prescription

REPORT_SCHEMA = 1
HEALTHY = "healthy"
UNDECIDED = "undecided"


@dataclass(frozen=True, slots=True, kw_only=True)
class Report:
    """The answer to one ``vramdoc diagnose``."""

    target_kind: str
    """``model``, ``model-folder``, ``snapshot``, ``recording``, ``crash-text``."""
    target_name: str
    """The file's own name, never its folder."""
    primary: str
    """A verdict id, ``healthy`` or ``undecided``."""
    headline: str
    """The answer in at most two sentences."""
    verdicts: Sequence[Verdict]
    """All of them, the primary one first, then by outcome and explained bytes."""
    prescriptions: Sequence[Prescription]
    """Best first: verified, not tried, refuted."""
    facts: Sequence[Fact]
    """The figures worth showing, in reading order."""
    environment: Mapping[str, Any] = field(default_factory=dict)
    workload: Mapping[str, Any] = field(default_factory=dict)
    command: str = ""
    """The command line that reproduces this report."""
    notes: Sequence[str] = ()
    missing: Sequence[str] = ()
    """What would have allowed to say more."""
    recording: str = ""
    """The folder's name under ``.vramdoc/``, when there is one. It holds the time of the run."""
    timing: Mapping[str, float] = field(default_factory=dict)
    """Seconds by stage; the only part of a report that may differ between two equal runs."""
    case: Case | None = None
    """For pictures and segment maps; None in a report that was read back."""

    @property
    def confirmed(self) -> tuple[Verdict, ...]:
        """The verdicts that hold."""
        return tuple(v for v in self.verdicts if v.outcome is Outcome.CONFIRMED)

    @property
    def leading(self) -> Verdict | None:
        """The verdict that the answer rests on; None when nothing is wrong and nothing is open."""
        return leading(self.verdicts, self.primary)


def leading(verdicts: Sequence[Verdict], primary: str) -> Verdict | None:
    """The primary verdict, or of an undecided case the gravest open question, the first of them in ``verdicts``."""
    if primary != UNDECIDED:
        return next((v for v in verdicts if v.id == primary), None)
    return next(
        (v for v in verdicts if v.outcome is Outcome.UNDECIDED and v.severity is Severity.ERROR),
        None,
    )
