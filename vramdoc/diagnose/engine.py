"""Every rule over one case, and which of the confirmed causes is the primary one. It knows no rule by its content."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from vramdoc.diagnose.rules import RULES
from vramdoc.diagnose.verdict import Confidence, Outcome, Severity, Verdict
from vramdoc.evidence.case import Case
from vramdoc.record.manifest import ExitKind

HEALTHY, UNDECIDED = "healthy", "undecided"
_PRECEDENCE = (
    # The program's own error names the cause, so sums of bytes come second.
    "conf-error",
    "conf-ineffective",
    "cublas-masked-device-assert",
    "cublas-library-mismatch",
    "ragged-batch",
    "resize-not-resizable",
    "host-oom",
    "conf-unsupported-platform",
    # A growing tensor explains why the device is full.
    "leak",
    "kv-growth",
)
_WARNING_KINDS = frozenset({"conf-unsupported", "conf-ignored", "conf-renamed", "out-resized"})


def judge(case: Case) -> list[Verdict]:
    """Ask every rule, in order. One that raises answers "undecided" with its error, so that the others are still heard."""
    return [_ask(rule.id, rule.judge, case) for rule in RULES]


def primary(verdicts: Sequence[Verdict], case: Case) -> str:
    """The id of the cause that leads, ``healthy`` when nothing failed and nothing is wrong, else ``undecided``.

    Errors come before warnings. Among several, the program's own error message decides, then the bytes that a cause explains. A
    failure that no error explains stays undecided, whatever warnings stand beside it.
    """
    for severity in (Severity.ERROR, Severity.WARNING):
        held = [v for v in verdicts if v.outcome is Outcome.CONFIRMED and v.severity is severity]
        if held:
            return min(held, key=_rank).id
        if failed(case):
            return UNDECIDED
    return UNDECIDED if case.crash is not None and case.manifest is None else HEALTHY


def failed(case: Case) -> bool:
    """Whether the case shows a failure, as opposed to a warning or a program that ended well."""
    if case.oom is not None:
        return True
    if case.manifest is not None:
        return case.manifest.exit.kind not in {
            ExitKind.SUCCESS,
            ExitKind.INTERRUPTED,
            ExitKind.RUNNING,
        }
    return case.crash is not None and any(
        i.kind not in _WARNING_KINDS for i in case.crash.incidents
    )


def _rank(verdict: Verdict) -> tuple[int, int, str]:
    order = _PRECEDENCE.index(verdict.id) if verdict.id in _PRECEDENCE else len(_PRECEDENCE)
    return order, -verdict.explains_bytes, verdict.id


def _ask(rule_id: str, ask: Callable[[Case], Verdict], case: Case) -> Verdict:
    try:
        return ask(case)
    except Exception as error:  # noqa: BLE001 - one broken rule must not cost the person the other answers
        return Verdict(
            id=rule_id,
            outcome=Outcome.UNDECIDED,
            severity=Severity.WARNING,
            confidence=Confidence.LOW,
            summary=f"This rule failed with {type(error).__name__}: {error}. Please report it with the input.",
            missing=("a working rule",),
        )
