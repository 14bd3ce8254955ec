"""Rule: one cause. Each lives in its own file under ``rules/`` as a module-level ``RULE``.

A rule reads a Case and answers with a Verdict. It never prints, reads the environment, opens a file or looks at another rule.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from vramdoc.diagnose.verdict import Verdict
from vramdoc.evidence.case import Case


@dataclass(frozen=True, slots=True, kw_only=True)
class Rule:
    """One cause, with the text that ``vramdoc explain`` and ``docs/findings`` show."""

    id: str
    title: str
    """A short noun phrase: "The device is full of live tensors"."""
    meaning: str
    """What it means, in a paragraph."""
    how_decided: str
    """Which evidence decides it, with the formula and the source of every threshold."""
    not_to_confuse_with: str
    """What looks like it and is not."""
    remedies: tuple[str, ...]
    """Prescription ids, best first."""
    references: tuple[str, ...]
    """PyTorch functions and releases, issues, papers."""
    judge: Callable[[Case], Verdict]
