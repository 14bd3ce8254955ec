"""Trials: each candidate change is carried out, and what happened is attached to it.

This module decides what a trial showed. It does not know how a rerun or a replay is done (``record``, ``replay``);
both come in as functions. It does not know the catalogue either.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from vramdoc.errors import VramdocError
from vramdoc.facts import Source
from vramdoc.prescribe.prescription import Prescription, Verification, VerificationStatus
from vramdoc.units import format_bytes

DRIVER_PAGE = 2 << 20
"""The driver hands out device memory in pages of 2 MiB: a smaller difference in peak reserved cannot matter."""


@dataclass(frozen=True, slots=True, kw_only=True)
class RunOutcome:
    """What one run (or replay) came to."""

    exit: str
    """``success``, ``oom``, ``cublas`` ... as ``record.recording.ExitKind`` spells it."""
    reserved_peak: int | None
    active_peak: int | None

    @property
    def failed(self) -> bool:
        """Whether the work did not get done."""
        return self.exit != "success"

    def to_json(self) -> dict[str, int | str | bool]:
        """Plain values; unknown peaks are left out."""
        values: dict[str, int | str | bool] = {"exit": self.exit, "oom": self.exit == "oom"}
        if self.reserved_peak is not None:
            values["reserved_peak"] = self.reserved_peak
        if self.active_peak is not None:
            values["active_peak"] = self.active_peak
        return values


@dataclass(frozen=True, slots=True, kw_only=True)
class Trial:
    """One way to try a change."""

    method: str
    """``rerun`` or ``replay``."""
    source: Source
    run: Callable[[str | None, Mapping[str, Any]], RunOutcome]
    """(allocator config or None to keep it, workload fields) -> what happened. May raise VramdocError."""
    can_change_workload: bool
    before: RunOutcome
    reached: str = "the same work now finishes"
    """What a trial shows that ends in success where the run had failed."""
    note: str = ""
    """How sure a replay is, in a sentence."""


def try_out(
    candidates: Sequence[Prescription],
    trial: Trial | None,
    *,
    limit: int,
    primary: str = "",
    progress: Callable[[str], None] = lambda _: None,
) -> list[Prescription]:
    """Try up to ``limit`` candidates and return all, best first: what was seen to end the failure, then what serves the primary cause.

    A replay ends with the recorded requests, so a change that only lets those succeed comes after what serves the cause itself.
    """
    tried: list[Prescription] = []
    left = limit
    for candidate in candidates:
        if trial is None or not _is_testable(candidate, trial):
            tried.append(candidate)
            continue
        if left == 0:
            tried.append(_left_out(candidate, limit))
            continue
        left -= 1
        progress(f"trying {candidate.id}: {candidate.title}")
        tried.append(replace(candidate, verification=_verify(candidate, trial)))
    return sorted(tried, key=lambda p: _rank(p, primary))


def _rank(prescription: Prescription, primary: str) -> tuple[bool, bool, bool, bool]:
    """Refuted ones last; first those that end the failure; a replay proves that only of what serves the primary cause."""
    trial, serves = prescription.verification, primary in prescription.serves
    verified = trial.status is VerificationStatus.VERIFIED
    ends_it = verified and (serves or trial.method != "replay")
    return (
        trial.status is VerificationStatus.REFUTED,
        not ends_it,
        not serves,
        not verified,
    )


def _left_out(candidate: Prescription, limit: int) -> Prescription:
    reason = f"only {limit} changes were tried; --trials tries more"
    return replace(candidate, verification=replace(candidate.verification, reason=reason))


def _is_testable(candidate: Prescription, trial: Trial) -> bool:
    has_change = bool(candidate.workload_change) and trial.can_change_workload
    return has_change or candidate.alloc_conf is not None


def _verify(candidate: Prescription, trial: Trial) -> Verification:
    """Change the workload where that can be done and is the remedy's own form; else set the config."""
    change = candidate.workload_change if trial.can_change_workload else {}
    try:
        after = trial.run(None if change else candidate.alloc_conf, change)
    except VramdocError as error:
        return replace(
            candidate.verification,
            status=VerificationStatus.NOT_TRIED,
            reason=f"the trial could not be run: {error.message}",
        )
    status, reason = _compare(trial, after)
    if trial.note:
        reason = f"{reason} ({trial.note})"
    return Verification(
        status=status,
        by=trial.source,
        method=trial.method,
        before=trial.before.to_json(),
        after=after.to_json(),
        reason=reason,
        command=candidate.verification.command,
    )


def _compare(trial: Trial, after: RunOutcome) -> tuple[VerificationStatus, str]:
    """A failure must end in success; work that did not fail must reserve at least one driver page less."""
    before = trial.before
    peaks = _peaks(before, after)
    if before.failed and not after.failed:
        return VerificationStatus.VERIFIED, f"{trial.reached}{peaks}"
    if before.failed:
        how = "in the same way" if after.exit == before.exit else f"with {after.exit}"
        return VerificationStatus.REFUTED, f"the same work still ends {how}{peaks}"
    if after.failed:
        return (
            VerificationStatus.REFUTED,
            f"the work that finished now ends with {after.exit}{peaks}",
        )
    if before.reserved_peak is None or after.reserved_peak is None:
        return VerificationStatus.NOT_TRIED, "it ran, but peak reserved memory is not known"
    if before.reserved_peak - after.reserved_peak >= DRIVER_PAGE:
        return VerificationStatus.VERIFIED, f"less memory is reserved{peaks}"
    return VerificationStatus.REFUTED, f"no less memory is reserved{peaks}"


def _peaks(before: RunOutcome, after: RunOutcome) -> str:
    if before.reserved_peak is None or after.reserved_peak is None:
        return ""
    return (
        f"; peak reserved {format_bytes(before.reserved_peak)}"
        f" before, {format_bytes(after.reserved_peak)} after"
    )
