"""From verdicts to a Report: the headline, what is shown of environment and workload, and the order of things."""

from __future__ import annotations

import signal
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from vramdoc.diagnose.elsewhere import elsewhere
from vramdoc.diagnose.verdict import Outcome, Verdict
from vramdoc.examine.figures import figures
from vramdoc.facts import Fact
from vramdoc.prescribe.prescription import Prescription
from vramdoc.record.manifest import ExitKind
from vramdoc.report.contents import HEALTHY, UNDECIDED, Report, leading
from vramdoc.units import format_bytes

if TYPE_CHECKING:
    from vramdoc.evidence.case import Case

_OUTCOMES = (Outcome.CONFIRMED, Outcome.UNDECIDED, Outcome.RULED_OUT)


def compose(
    case: Case,
    *,
    verdicts: Sequence[Verdict],
    primary: str,
    prescriptions: Sequence[Prescription],
    command: str,
    recording: str,
) -> Report:
    """Put a report together; the primary verdict comes first, then confirmed ones by the bytes they explain."""
    facts = figures(case)
    ordered = sorted(
        verdicts,
        key=lambda v: (v.id != primary, _OUTCOMES.index(v.outcome), -v.explains_bytes, v.id),
    )
    return Report(
        target_kind=case.kind,
        target_name=case.name,
        primary=primary,
        headline=_headline(primary, ordered, facts, case),
        verdicts=tuple(ordered),
        prescriptions=tuple(prescriptions),
        facts=facts,
        environment=_environment(case),
        workload=dict(case.manifest.workload) if case.manifest is not None else {},
        command=command,
        notes=tuple(case.manifest.notes) if case.manifest is not None else (),
        missing=_missing(primary, ordered, case),
        recording=recording,
        case=case,
    )


def _headline(primary: str, verdicts: Sequence[Verdict], facts: Sequence[Fact], case: Case) -> str:
    if primary == HEALTHY:
        return _healthy(facts, case)
    if primary == UNDECIDED and (ended := _elsewhere(case) or _killed(case) or _raised(case)):
        return ended
    found = leading(verdicts, primary)
    if found is None:
        return "The cause cannot be told from this. See below for what would decide it."
    return found.summary


def _elsewhere(case: Case) -> str:
    """An error that is known and is no shortage; empty where there is none."""
    return elsewhere(case.crash) if case.crash is not None else ""


def _killed(case: Case) -> str:
    """How a signal ended the program, with what the recorder found out about it; empty where none did."""
    if case.manifest is None or case.manifest.exit.signal is None:
        return ""
    number = case.manifest.exit.signal
    name = next((s.name for s in signal.Signals if s.value == number), f"signal {number}")
    told = " ".join(note for note in case.manifest.notes if name in note)
    return f"The program was ended by {name}, not by an error of its own. {told}".strip()


def _raised(case: Case) -> str:
    """The error that ended the program and that no rule knows; empty where there is none."""
    if case.manifest is None or case.manifest.exit.kind is not ExitKind.EXCEPTION:
        return ""
    ending = case.manifest.exit
    message = next(iter((ending.message or "").strip().splitlines()), "")
    said = f"{ending.exception_type}: {message}" if message else ending.exception_type
    ended = f"The program ended with {said or 'an error'}, which no rule here knows: nothing points at memory."
    device = case.manifest.device
    if device is not None and device.kind == "virtual":
        ended += " A virtual GPU computes nothing, so what a program reads back from it is arbitrary, and an error about values or sizes may come from that."
    return ended


def _healthy(facts: Sequence[Fact], case: Case) -> str:
    values = {fact.name: fact.value for fact in facts}
    reserved, total = values.get("reserved_peak"), values.get("device_total")
    if not isinstance(reserved, int):
        return "Nothing failed, and no rule objects."
    if not isinstance(total, int):
        return f"Nothing failed: peak reserved memory is {format_bytes(reserved)}."
    where = case.manifest.device.name if case.manifest and case.manifest.device else "the device"
    size = format_bytes(total)
    room = (
        f"on a {where}" if size in where else f"of {size} on {where}"
    )  # a virtual GPU is named for its size
    sentence = f"It fits: peak reserved memory is {format_bytes(reserved)} {room}."
    free = values.get("driver_free_least")
    if isinstance(free, int):
        sentence += f" At the end of every phase the driver had at least {format_bytes(free)} free."
    return sentence


def _environment(case: Case) -> Mapping[str, Any]:
    if case.manifest is None:
        known: dict[str, Any] = {}
        if case.crash is not None:
            known = {
                "torch": case.crash.torch_version,
                "platform": case.crash.platform,
                "alloc_conf": case.crash.alloc_conf,
            }
        elif case.snapshot is not None:
            known = {"alloc_conf": case.snapshot.alloc_conf}
        return {key: value for key, value in known.items() if value is not None}
    manifest = case.manifest
    environment: dict[str, Any] = {
        **manifest.versions,
        **manifest.platform,
        "alloc_conf": manifest.alloc_conf,
        "variables": dict(manifest.environment),
    }
    if manifest.device is not None:
        device = manifest.device
        environment["device"] = {
            "kind": device.kind,
            "name": device.name,
            "key": device.key,
            "total": device.total_bytes,
            "compute_capability": device.compute_capability,
        }
    return environment


def _missing(primary: str, verdicts: Sequence[Verdict], case: Case) -> tuple[str, ...]:
    wanted = list(case.missing)
    if primary == UNDECIDED:
        for verdict in verdicts:
            if verdict.outcome is Outcome.UNDECIDED:
                wanted.extend(verdict.missing)
    return tuple(dict.fromkeys(wanted))
