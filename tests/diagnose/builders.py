"""Cases out of literal values: a text, a message's figures, a recording."""

from __future__ import annotations

from typing import Any

from tests.crashlog.messages import GIB, HINT_22, MIB, Numbers, cached, parenthesised, sentences
from vramdoc.crashlog import parse
from vramdoc.diagnose.engine import judge, primary
from vramdoc.diagnose.verdict import Verdict
from vramdoc.evidence.anatomy import anatomy_from_crash
from vramdoc.evidence.case import Case
from vramdoc.evidence.fragmentation import Fragmentation
from vramdoc.record.recording import DeviceInfo, Exit, ExitKind, Manifest, Observation, Phase

__all__ = ["GIB", "MIB", "Numbers", "cached", "gib", "parenthesised", "sentences"]


def gib(value: float) -> int:
    """GiB as bytes."""
    return round(value * GIB)


def text_case(text: str, **parts: Any) -> Case:
    """What ``case_from_crash_text`` makes of ``text``."""
    log = parse(text)
    return Case(
        kind="crash-text", name="crash.log", crash=log, oom=anatomy_from_crash(log), **parts
    )


def message(*, hint: str = HINT_22, old: bool = False, **numbers: Any) -> Case:
    """A case of one out-of-memory message; sizes in GiB."""
    sizes = {
        name: value if name in {"device", "others"} else gib(value)
        for name, value in numbers.items()
        if value is not None
    }
    if "others" in sizes:
        sizes["others"] = tuple((pid, gib(size)) for pid, size in sizes["others"])
    n = Numbers(**sizes)
    return text_case(
        "torch.OutOfMemoryError: " + (parenthesised(n) if old else sentences(n, hint=hint))
    )


def manifest(exit_kind: ExitKind = ExitKind.SUCCESS, **parts: Any) -> Manifest:
    """A recording's manifest on a virtual 24 GiB card."""
    defaults: dict[str, Any] = {
        "created": "2026-12-01T00:00:00Z",
        "tool_version": "0.1.0",
        "versions": {"torch": "2.14.1"},
        "platform": {"system": "Linux"},
        "alloc_conf": "",
        "device": DeviceInfo(
            kind="virtual",
            name="NVIDIA GeForce RTX 4090",
            key="rtx4090",
            total_bytes=24 * GIB,
            compute_capability="8.9",
            multiprocessors=128,
            cublas_handle_bytes=64 * MIB,
            foreign_bytes=0,
        ),
        "exit": Exit(kind=exit_kind),
    }
    return Manifest(**{**defaults, **parts})


def observation(kind: str, **detail: Any) -> Observation:
    """One observation of a guard."""
    return Observation(kind=kind, time_us=1, detail=detail)


def phase(name: str, **detail: Any) -> Phase:
    """One phase."""
    return Phase(name=name, started_us=0, ended_us=1, detail=detail)


def recording(made: Manifest, **parts: Any) -> Case:
    """A case of a recording."""
    return Case(kind="recording", name="run", manifest=made, **parts)


def held(**values: Any) -> Fragmentation:
    """A layout; sizes in bytes, 0 where not given."""
    zero: dict[str, Any] = dict.fromkeys(
        (
            "reserved_bytes", "active_bytes", "allocated_bytes", "requested_bytes", "pending_bytes", "internal_bytes", "inactive_bytes",
            "returnable_bytes", "external_bytes", "private_pool_inactive_bytes", "largest_inactive_bytes",
        ),
        0,
    )  # fmt: skip
    return Fragmentation(**{**zero, "device": 0, "stranded_bytes": None, "groups": (), **values})


def verdict(case: Case, rule_id: str) -> Verdict:
    """What one rule answers."""
    return next(v for v in judge(case) if v.id == rule_id)


def leading(case: Case) -> str:
    """The primary id."""
    return primary(judge(case), case)


def said(case: Case) -> str:
    """Summary and notes of the primary verdict."""
    found = verdict(case, leading(case))
    return " ".join((found.summary, *found.notes))
