"""The catalogue of remedies, and the choice of those that fit a case. Nothing is tried here (``verify`` does).

Two mapping rules hold everywhere: no allocator option against a device that is full of live tensors, and no empty_cache against the
unallocated bytes of an out-of-memory message, which the allocator has already tried to return.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

from vramdoc.diagnose.engine import primary
from vramdoc.diagnose.rules import RULES
from vramdoc.diagnose.vendors import vendor
from vramdoc.diagnose.verdict import Confidence, Outcome, Severity, Verdict
from vramdoc.evidence.case import Case
from vramdoc.prescribe.circumstances import CONDITIONS, Circumstances, circumstances
from vramdoc.prescribe.corrected_setting import corrected_setting, refused_entry
from vramdoc.prescribe.engines import ENGINE_COMMANDS, ENGINES, engine_at_work
from vramdoc.prescribe.prescription import Prescription, Verification, VerificationStatus
from vramdoc.prescribe.remedies.allocator_settings import ALLOCATOR_SETTINGS
from vramdoc.prescribe.remedies.machine import MACHINE
from vramdoc.prescribe.remedies.program import PROGRAM
from vramdoc.prescribe.remedy import Remedy
from vramdoc.prescribe.snippets import environment_snippets, settings_text, variable_for
from vramdoc.units import MIB

CATALOGUE: Mapping[str, Remedy] = {
    remedy.id: remedy for remedy in (*ALLOCATOR_SETTINGS, *PROGRAM, *MACHINE)
}
"""Every remedy by id."""

_REMEDIES_OF = {rule.id: rule.remedies for rule in RULES}
_SEVERITIES = (Severity.ERROR, Severity.WARNING)
_ONLY_WHEN_SURE = frozenset({"RX-BATCH"})
"""Costly changes that a mere likelihood does not justify."""
_RECORD = (
    "vramdoc record -- python your_script.py    # before and after the change, then: vramdoc diff"
)


def candidates(verdicts: Sequence[Verdict], case: Case) -> list[Prescription]:
    """Changes worth trying against what is confirmed, best first: the primary cause, then errors before warnings, then by the bytes they explain."""
    around = circumstances(case)
    held = [v for v in verdicts if v.outcome is Outcome.CONFIRMED and v.severity in _SEVERITIES]
    first = primary(verdicts, case)
    held.sort(key=lambda v: (v.id != first, _SEVERITIES.index(v.severity), -v.explains_bytes, v.id))
    chosen: dict[str, Remedy] = {}
    for verdict in held:
        for remedy in _fitting(verdict, around):
            chosen.setdefault(remedy.id, remedy)
    figures = _figures(around, case)
    return [_prescription(remedy, around, figures, case) for remedy in chosen.values()]


def _fitting(verdict: Verdict, around: Circumstances) -> Iterator[Remedy]:
    for remedy_id in _REMEDIES_OF[verdict.id]:
        remedy = CATALOGUE[remedy_id]
        sure = verdict.confidence is not Confidence.LOW or remedy_id not in _ONLY_WHEN_SURE
        if sure and all(CONDITIONS[need](around) for need in remedy.needs):
            yield remedy


def _prescription(
    remedy: Remedy, around: Circumstances, figures: Mapping[str, str], case: Case
) -> Prescription:
    conf = _alloc_conf(remedy, around, case)
    return Prescription(
        id=remedy.id,
        title=remedy.title,
        change=remedy.change,
        serves=remedy.serves,
        risk=remedy.risk,
        limits=remedy.limits,
        alloc_conf=None if remedy.settings_from else conf,
        workload_change=remedy.workload_change,
        snippets=_snippets(remedy, conf, around, figures),
        verification=Verification(
            status=VerificationStatus.NOT_TRIED,
            reason=_why_not_tried(case, conf, remedy),
            command=_command(remedy, conf, figures, case),
        ),
    )


def _alloc_conf(remedy: Remedy, around: Circumstances, case: Case) -> str | None:
    """The whole string to set: what is in force already, less what the change makes pointless, or what the case itself meant to set."""
    if remedy.settings_from == "refused":
        return corrected_setting(case)
    if remedy.settings_from == "not in force":
        return around.set_in_vain
    accepted = remedy.settings_since <= (around.oldest_release or (2, 0))
    if not remedy.settings or not accepted:
        return None
    changed = dict(remedy.settings)
    if "max_split_size_mb" in changed and around.requested:
        changed["max_split_size_mb"] = str(split_size(around.requested))
    alone = {"expandable_segments", "backend"} & changed.keys()
    kept = {} if alone else {k: v for k, v in around.settings.items() if k != "expandable_segments"}
    return settings_text({**kept, **changed})


def split_size(requested: int) -> int:
    """The largest power of two in MiB below the request (at least 64): blocks that could serve it stay whole."""
    size = 64
    while size * 2 * MIB <= requested and size < 1024:
        size *= 2
    return size


def _snippets(
    remedy: Remedy, conf: str | None, around: Circumstances, figures: Mapping[str, str]
) -> dict[str, str]:
    variables = {
        _filled(name, figures): _filled(value, figures)
        for name, value in remedy.environment.items()
    }
    if conf is not None:
        name = variable_for(around.release, in_use=around.variable, is_rocm=around.is_rocm)
        variables[name] = conf
    snippets = environment_snippets(variables) if variables else {}
    if remedy.python:
        snippets["python"] = remedy.python
    if remedy.command_line:
        snippets["bash"] = "\n".join(
            part
            for part in (_filled(remedy.command_line, figures), snippets.get("bash", ""))
            if part
        )
    return snippets


def _filled(text: str, figures: Mapping[str, str]) -> str:
    """``text`` with the case's own figures in place of their names in braces."""
    for name, value in figures.items():
        text = text.replace(f"{{{name}}}", value)
    return text


def _figures(around: Circumstances, case: Case) -> dict[str, str]:
    """What remedies name in braces; an engine's command may name further figures, so those come after it."""
    engine, device = engine_at_work(around.signs) or ENGINES[0], vendor(case)
    return {
        "lister": device.lister,
        "processes": device.processes,
        "visible": device.visible,
        **{purpose: commands[engine] for purpose, commands in ENGINE_COMMANDS.items()},
        "stored_tokens": _stored_tokens(case),
        "idle_gpu": _idle_gpu(case),
        "setting": corrected_setting(case)
        or settings_text(around.settings)
        or refused_entry(case)
        or "OPTION:VALUE",
    }


def _stored_tokens(case: Case) -> str:
    """How many tokens the engine says its cache holds; 4096 as an example where it does not."""
    said = case.crash.first("engine-kv") if case.crash is not None else None
    stored = said.readings.get("stored_tokens") if said is not None else None
    return str(stored.value) if stored is not None else "4096"


def _idle_gpu(case: Case) -> str:
    """The GPU with most free memory in a table that the text shows; 1 as an example where there is none."""
    rows = (
        [o.readings for o in case.crash.observations if o.kind == "gpu-row"]
        if case.crash is not None
        else []
    )
    if not rows:
        return "1"
    emptiest = max(rows, key=lambda row: int(row["total"].value) - int(row["used"].value))
    return str(emptiest["device"].value)


def _why_not_tried(case: Case, conf: str | None, remedy: Remedy) -> str:
    if case.manifest is None and case.snapshot is None and case.oom_snapshot is None:
        return "from a text alone nothing can be run or replayed"
    if remedy.settings_from:
        return "whether a setting is in force is a question to torch itself"
    if conf is None and not remedy.workload_change:
        return "this is a change outside the allocator's settings, which only you can make"
    if conf is None:
        return "this is a change of the program itself"
    return "no trial was asked for"


def _command(remedy: Remedy, conf: str | None, figures: Mapping[str, str], case: Case) -> str:
    """What verifies the change, where we could not."""
    if remedy.check:
        return _filled(remedy.check, figures)
    if conf is None:
        return _RECORD
    if case.snapshot is not None or case.oom_snapshot is not None:
        return f"vramdoc compare-alloc-configs {case.name}"
    return f"vramdoc record --alloc-conf '{conf}' -- python your_script.py"
