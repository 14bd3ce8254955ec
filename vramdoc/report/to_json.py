"""A Report as one JSON object: the contract that other programs rely on (design section 5). Keys are only ever added.

Bytes are integers. Nothing differs between two equal runs but what stands under ``timing``.
"""

from __future__ import annotations

import json
import math
from collections.abc import Iterable, Mapping
from enum import Enum
from typing import Any

from vramdoc.diagnose.verdict import Verdict
from vramdoc.evidence.case import Case
from vramdoc.facts import Fact
from vramdoc.prescribe.prescription import Prescription
from vramdoc.report.contents import REPORT_SCHEMA, Report


def render_json(report: Report) -> str:
    """Render ``report``. ASCII only, so that it survives any pipe; ends with a newline."""
    return json.dumps(report_object(report), indent=2, allow_nan=False) + "\n"


def report_object(report: Report) -> dict[str, Any]:
    """The same as plain containers."""
    facts = _first_of_each_name(report.facts)
    return {
        "schema_version": REPORT_SCHEMA,
        "target": {"kind": report.target_kind, "name": report.target_name},
        "primary": report.primary,
        "headline": report.headline,
        "verdicts": [_verdict(v) for v in report.verdicts],
        "prescriptions": [_prescription(p) for p in report.prescriptions],
        "facts": {fact.name: plain(fact.value) for fact in facts},
        "fact_sources": {fact.name: _origin(fact) for fact in facts},
        **_lines_of_code(report.case),
        "environment": plain(report.environment),
        "workload": plain(report.workload),
        "command": report.command,
        "notes": list(report.notes),
        "missing": list(report.missing),
        # A recording is named for the time of its run, so its name is a time as well.
        "timing": {"recording": report.recording, **plain(report.timing)},
    }


def plain(value: Any) -> Any:
    """Anything a mapping of a Report may hold, as JSON values; keys sorted, what is not a number null."""
    if isinstance(value, Enum):
        return plain(value.value)
    if value is None or isinstance(value, (str, bool, int)):
        return value
    if isinstance(value, float):
        return value if math.isfinite(value) else None
    if isinstance(value, Mapping):
        return {str(key): plain(value[key]) for key in sorted(value, key=str)}
    if isinstance(value, (set, frozenset)):
        return sorted((plain(part) for part in value), key=str)
    if isinstance(value, (list, tuple)):
        return [plain(part) for part in value]
    return str(value)


def _lines_of_code(case: Case | None) -> dict[str, Any]:
    """Which lines hold memory at its peak, keep segments, and let it grow; only what was measured."""
    if case is None:
        return {}
    lines: dict[str, Any] = {}
    if case.peak_sites:
        lines["peak_sites"] = [
            {"site": str(use.site), "bytes": use.bytes, "count": use.count}
            for use in case.peak_sites
        ]
    if case.holders is not None:
        lines["holders"] = [
            {
                "kind": str(held.kind), "what": held.holder.what, "owner": held.holder.owner, "via": held.holder.via,
                "place": "" if held.place is None else str(held.place), "bytes": held.bytes, "graph_bytes": held.holder.graph_bytes,
            }
            for held in case.holders.held
        ]  # fmt: skip
    if case.pins:
        lines["pins"] = [
            {
                "site": str(p.site),
                "inactive_bytes": p.inactive_bytes,
                "live_bytes": p.live_bytes,
                "segments": p.segments,
            }
            for p in case.pins
        ]
    if case.growth is not None:
        growth = case.growth
        lines["growth"] = {
            "per_step_bytes": growth.per_step_bytes, "grown_bytes": growth.grown_bytes, "steps": growth.steps,
            "period": growth.period_source,
            "sites": [
                {"site": str(s.site), "per_step_bytes": s.per_step_bytes, "grown_bytes": s.grown_bytes, "count": s.count}
                for s in growth.sites
            ],
        }  # fmt: skip
    return lines


def _first_of_each_name(facts: Iterable[Fact]) -> list[Fact]:
    named: dict[str, Fact] = {}
    for fact in facts:
        named.setdefault(fact.name, fact)
    return list(named.values())


def _origin(fact: Fact) -> dict[str, str]:
    return {"unit": fact.unit, "source": str(fact.source), "where": fact.where}


def _fact(fact: Fact) -> dict[str, Any]:
    return {"name": fact.name, "value": plain(fact.value), **_origin(fact)}


def _verdict(verdict: Verdict) -> dict[str, Any]:
    return {
        "id": verdict.id,
        "outcome": str(verdict.outcome),
        "severity": str(verdict.severity),
        "confidence": str(verdict.confidence),
        "summary": verdict.summary,
        "evidence": [_fact(fact) for fact in verdict.evidence],
        "missing": list(verdict.missing),
        "explains_bytes": verdict.explains_bytes,
        "notes": list(verdict.notes),
    }


def _prescription(prescription: Prescription) -> dict[str, Any]:
    trial = prescription.verification
    return {
        "id": prescription.id,
        "title": prescription.title,
        "change": prescription.change,
        "serves": list(prescription.serves),
        "risk": prescription.risk,
        "limits": prescription.limits,
        "alloc_conf": prescription.alloc_conf,
        "snippets": dict(prescription.snippets),
        "verification": {
            "status": str(trial.status),
            "by": None if trial.by is None else str(trial.by),
            "method": trial.method,
            "before": dict(trial.before),
            "after": dict(trial.after),
            "reason": trial.reason,
            "command": trial.command,
        },
    }
