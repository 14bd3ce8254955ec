"""Prescriptions: a change to try, how risky it is, and what happened when it was tried.

This module knows neither the catalogue nor how a trial is run.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import Enum
from typing import Any

from vramdoc.facts import Source


class VerificationStatus(str, Enum):
    """What a trial showed."""

    VERIFIED = "verified"
    REFUTED = "refuted"
    NOT_TRIED = "not_tried"

    def __str__(self) -> str:
        return self.value


@dataclass(frozen=True, slots=True, kw_only=True)
class Verification:
    """The trial of one prescription. ``before`` and ``after`` hold the same keys, bytes as integers."""

    status: VerificationStatus
    by: Source | None = None
    """By which means; None when not tried."""
    method: str = ""
    """``"rerun"``, ``"replay"``, ``"probe"``."""
    before: Mapping[str, int | str | bool] = field(default_factory=dict)
    """For example ``{"oom": True, "reserved_peak": 25e9, "active_peak": ..., "exit": "oom"}``."""
    after: Mapping[str, int | str | bool] = field(default_factory=dict)
    reason: str = ""
    """Why it was not tried, or what the trial showed in a sentence."""
    command: str = ""
    """The command that verifies it, where we could not."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Prescription:
    """One change. ``change`` is one sentence; ``snippets`` are ready to paste, by place."""

    id: str
    """Catalogue id, for example ``"RX-EXPANDABLE"``."""
    title: str
    change: str
    serves: tuple[str, ...]
    """Verdict ids."""
    risk: str
    limits: str = ""
    """Platforms and releases where it does not work."""
    alloc_conf: str | None = None
    """The config string, when the change is one."""
    workload_change: Mapping[str, Any] = field(default_factory=dict)
    """Fields of WorkloadSpec that a rerun of our own workload sets to try this change."""
    snippets: Mapping[str, str] = field(default_factory=dict)
    """``"bash"``, ``"powershell"``, ``"cmd"``, ``"python"``, ``"dockerfile"``, ``"kubernetes"`` -> text."""
    verification: Verification
