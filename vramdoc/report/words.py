"""How facts, verdicts and trials are worded: the same words in every format. It knows no markup and places nothing."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any

from vramdoc.diagnose.kept import outstanding, phrase
from vramdoc.diagnose.verdict import Outcome, Verdict
from vramdoc.evidence.case import Case
from vramdoc.facts import Fact, Source
from vramdoc.prescribe.prescription import Prescription, Verification, VerificationStatus
from vramdoc.record.manifest import DeviceInfo
from vramdoc.report.contents import HEALTHY, UNDECIDED, Report
from vramdoc.units import format_bytes

LABELS = {
    "requested": "requested from the device",
    "total": "device total",
    "free": "free on the device",
    "allocated": "allocated by PyTorch",
    "unallocated": "reserved but unallocated",
    "reserved": "reserved by PyTorch",
    "process": "used by this process",
    "private_pools": "free in private pools",
    "allowed": "memory limit",
    "device_total": "device total",
    "driver_free_least": "least free at the driver",
    "kv_cache_peak": "peak KV cache",
    "returnable": "returnable by empty_cache",
    "largest_hole": "largest hole for the request",
    "non_pytorch": "outside PyTorch",
    "other_processes": "held by other processes",
    "oom": "out of memory",
    "exit": "ended with",
    "alloc_retries": "allocation retries",
    "device_alloc": "driver calls that took memory",
    "device_free": "driver calls that gave it back",
    "pytorch_cuda_alloc_conf": "PYTORCH_CUDA_ALLOC_CONF",
    "pytorch_hip_alloc_conf": "PYTORCH_HIP_ALLOC_CONF",
    "pytorch_alloc_conf": "PYTORCH_ALLOC_CONF",
    "alloc_conf": "allocator setting",
    "alloc_conf_in_force": "allocator setting in force",
}
"""Names that torch's message or the design fix; every other name is its own label with the underscores taken out."""

TITLES = {
    "true-capacity": "true capacity",
    "fragmentation": "fragmentation",
    "foreign-process": "another process holds the memory",
    "memory-limit": "memory limit",
    "non-pytorch-memory": "memory outside PyTorch",
    "cublas-handle-no-vram": "no memory for the cuBLAS handle",
    "cublas-masked-device-assert": "device assert behind a cuBLAS error",
    "cublas-library-mismatch": "mismatched cuBLAS libraries",
    "resize-not-resizable": "storage that cannot be resized",
    "ragged-batch": "ragged batch",
    "kv-growth": "KV cache growth",
    "leak": "leak",
    "conf-error": "allocator setting refused",
    "conf-unsupported-platform": "allocator setting unsupported here",
    "conf-ineffective": "allocator setting not in force",
    "graph-private-pool": "memory in CUDA graph pools",
    "host-oom": "out of host memory",
}
"""Verdict ids as a person would say them; an id without an entry is said with blanks for its hyphens."""
_RETITLED = frozenset(name for name, title in TITLES.items() if title != name.replace("-", " "))

SOURCES = {
    Source.MEASURED: "measured on a real device",
    Source.VIRTUAL_GPU: "PyTorch's allocator on a virtual GPU",
    Source.REPLAYED: "the recorded requests, through an exact copy of PyTorch's allocator",
    Source.READ: "read from the person's own file or message",
    Source.ESTIMATED: "estimated from a formula",
}

STATUS = {
    VerificationStatus.VERIFIED: "verified",
    VerificationStatus.REFUTED: "refuted",
    VerificationStatus.NOT_TRIED: "not tried",
}

SUSPECTS = (
    "true-capacity", "fragmentation", "foreign-process", "memory-limit", "non-pytorch-memory", "kv-growth", "leak",
    "graph-private-pool",
)  # fmt: skip
"""Causes of an out-of-memory error that a person thinks of, in the order of design section 5."""

READ_FIRST = ("requested", "free", "largest_hole", "unallocated", "allocated", "total")

SNIPPET_ORDER = ("bash", "python", "powershell", "cmd", "dockerfile", "kubernetes")

MANY = 8
"""Entries of one table of settings from which on equal values are said once."""

_COUNTS = frozenset({"device_alloc", "device_free", "steps", "retries", "ooms", "segments", "code"})
"""Integers of a trial that are not bytes; everything else there is (``Verification``)."""


def label(name: str) -> str:
    """The words for a snake_case name: ``weight_bytes`` is "weight", ``reserved_peak`` "peak reserved"."""
    if name in LABELS:
        return LABELS[name]
    if name.endswith("_peak"):
        name = f"peak_{name.removesuffix('_peak')}"
    elif name.endswith("_end"):
        name = f"{name.removesuffix('_end')}_at_the_end"
    return name.removesuffix("_bytes").replace("_", " ")


def quantity(value: object, unit: str) -> str:
    """A value as people read it, by its unit (see ``Fact``)."""
    if isinstance(value, bool) or unit == "flag":
        return "yes" if value else "no"
    if isinstance(value, float) and not math.isfinite(value):
        return "not a number"
    if isinstance(value, (int, float)):
        if unit == "bytes":
            return format_bytes(round(value))
        if unit == "ratio":
            return f"{100 * value:.1f} %"
        if unit == "seconds":
            return f"{value:.2f} s"
        return f"{value:,}"
    return str(value)


def fact_value(fact: Fact) -> str:
    """The value of one fact as people read it."""
    return quantity(fact.value, fact.unit)


def outcome(report: Report) -> str:
    """The primary answer as a short title: ``Fragmentation``, ``Healthy``, ``Undecided``."""
    title = TITLES.get(report.primary, report.primary.replace("-", " "))
    return title[:1].upper() + title[1:]


def target(report: Report) -> str:
    """What was looked at, and what it is: "crash.log (crash text)"."""
    name = "standard input" if report.target_name == "-" else report.target_name
    return f"{name} ({report.target_kind.replace('-', ' ')})"


def is_bad(report: Report) -> bool:
    """Whether something was found."""
    return report.primary not in {HEALTHY, UNDECIDED}


def best_action(report: Report) -> Prescription | None:
    """The prescription to show first; None when there is none, or when all that were tried failed."""
    first = next(iter(report.prescriptions), None)
    if first is None or first.verification.status is VerificationStatus.REFUTED:
        return None
    return first


def best_snippet(prescription: Prescription, report: Report) -> tuple[str, str] | None:
    """``(place, text)`` of the snippet for the reader's own system."""
    snippets = prescription.snippets
    system = str(report.environment.get("platform", "")) + str(report.environment.get("system", ""))
    order = ("powershell", *SNIPPET_ORDER) if "windows" in system.lower() else SNIPPET_ORDER
    for place in (*order, *sorted(snippets)):
        if snippets.get(place):
            return place, snippets[place]
    return None


def trial_line(trial: Verification) -> str:
    """One line on how sure a prescription is: "verified by rerun (PyTorch's allocator on a virtual GPU)"."""
    if trial.status is VerificationStatus.NOT_TRIED:
        return f"not tried: {trial.reason}" if trial.reason else "not tried"
    if trial.by is Source.REPLAYED:
        return f"{STATUS[trial.status]} by replay of the recorded requests"
    by = f" by {trial.method}" if trial.method else ""
    means = f" ({SOURCES[trial.by]})" if trial.by is not None else ""
    return f"{STATUS[trial.status]}{by}{means}"


def trial_rows(trial: Verification) -> list[tuple[str, str, str]]:
    """``(what, before, after)``, bytes as people read them, in the order the trial gives them."""
    names = list(dict.fromkeys((*trial.before, *trial.after)))
    return [(label(n), _trial_value(n, trial.before), _trial_value(n, trial.after)) for n in names]


def _trial_value(name: str, side: Mapping[str, int | str | bool]) -> str:
    if name not in side:
        return "?"
    counted = name in _COUNTS or name.endswith(("_calls", "_count", "_steps"))
    return quantity(side[name], "count" if counted else "bytes")


def by_outcome(report: Report, wanted: Outcome) -> list[Verdict]:
    """The verdicts with one outcome, in the report's order; what was ruled out, the likeliest suspects first."""
    found = [v for v in report.verdicts if v.outcome is wanted]
    if wanted is not Outcome.RULED_OUT:
        return found
    return sorted(found, key=lambda v: SUSPECTS.index(v.id) if v.id in SUSPECTS else len(SUSPECTS))


def deciders(report: Report) -> list[tuple[str, list[str]]]:
    """What would decide open verdicts, each once with their ids: what decides most comes first."""
    found: dict[str, list[str]] = {}
    for verdict in by_outcome(report, Outcome.UNDECIDED):
        for missing in verdict.missing:
            found.setdefault(missing, []).append(verdict.id)
    return sorted(found.items(), key=lambda item: -len(item[1]))


def also_missing(report: Report) -> list[str]:
    """What the report lacks beyond what ``deciders`` says."""
    said = {missing for missing, _ in deciders(report)}
    return [sentence for sentence in report.missing if sentence not in said]


def evidence(report: Report) -> list[Fact]:
    """What the answer rests on, in reading order; the report's own figures where nothing is wrong and nothing open."""
    found = report.leading.evidence if report.leading is not None else ()
    return in_reading_order(found or report.facts)


def in_reading_order(facts: Sequence[Fact]) -> list[Fact]:
    """Evidence with what a reader compares first at the top: the request, then what there was for it; else as given."""
    first = [fact for name in READ_FIRST for fact in facts if fact.name == name]
    return [*first, *(fact for fact in facts if fact.name not in READ_FIRST)]


def pairs(values: Mapping[str, Any], prefix: str = "") -> list[tuple[str, str]]:
    """A nested mapping as flat ``(name, text)`` rows, sorted by name; empty values are left out."""
    rows: list[tuple[str, str]] = []
    for name in sorted(values, key=str):
        value, full = values[name], f"{prefix}{name}"
        if isinstance(value, Mapping):
            same = len(value) > MANY and len({str(part) for part in value.values()}) == 1
            alike = (full, f"{next(iter(value.values()))} (all {len(value)})") if same else None
            rows += [alike] if alike else pairs(value, f"{full}.")
        elif isinstance(value, (list, tuple)):
            rows.append((full, ", ".join(str(part) for part in value)))
        elif value is not None and value != "":
            is_size = isinstance(value, int) and full.endswith(("_bytes", "device.total"))
            rows.append((full, quantity(value, "bytes" if is_size else "text")))
    return [row for row in rows if row[1] != ""]


def device_name(device: DeviceInfo) -> str:
    """Name, kind and size of a device, each said once."""
    size = format_bytes(device.total_bytes)
    kind = "" if device.kind in device.name.lower() else f" ({device.kind})"
    return f"{device.name}{kind}" if size in device.name else f"{device.name}{kind}, {size}"


def device_line(report: Report) -> str:
    """The device and the torch release, in one line; empty when nobody said."""
    parts = []
    device = report.case.manifest.device if report.case and report.case.manifest else None
    if device is not None:
        parts.append(device_name(device))
    elif isinstance(report.environment.get("device"), Mapping):
        parts.append(", ".join(text for _, text in pairs(report.environment["device"])))
    elif report.environment.get("device"):
        parts.append(str(report.environment["device"]))
    versions = report.environment.get("versions", report.environment)
    if isinstance(versions, Mapping) and versions.get("torch"):
        parts.append(f"torch {versions['torch']}")
    if report.environment.get("alloc_conf"):
        parts.append(f"PYTORCH_CUDA_ALLOC_CONF={report.environment['alloc_conf']}")
    return " · ".join(parts)


def workload_line(report: Report) -> str:
    """The one line that reproduces the workload; its name where there is no such line."""
    return str(report.workload.get("line") or report.workload.get("name") or "")


def verdict_id(report: Report) -> str:
    """The primary verdict's id, where the title does not say it already."""
    return report.primary if is_bad(report) and report.primary in _RETITLED else ""


def sureness(report: Report) -> str:
    """How sure the primary verdict is: "high confidence"; empty where nothing was found."""
    verdict = report.leading
    return f"{verdict.confidence} confidence" if is_bad(report) and verdict is not None else ""


def holder_rows(case: Case | None) -> list[tuple[str, str, str]]:
    """``(line, bytes, blocks)`` of what every line of code holds when active memory peaks, largest first."""
    uses = case.peak_sites if case is not None else ()
    return [(str(use.site), format_bytes(use.bytes), f"{use.count:,}") for use in uses]


def kept_by(report: Report) -> str:
    """Who keeps the memory, by the program's own names: the largest two; empty where nobody looked or the verdict says so itself."""
    if report.case is None or report.primary == "leak":
        return ""
    kept = outstanding(report.case)[:2]
    return "; ".join(f"{phrase(held)} {format_bytes(held.bytes)}" for held in kept)


def pin_rows(case: Case | None) -> list[tuple[str, str, str, str]]:
    """``(line, idle bytes kept, own bytes, segments)`` of the lines that alone keep partly free segments."""
    return [
        (
            str(pin.site),
            format_bytes(pin.inactive_bytes),
            format_bytes(pin.live_bytes),
            f"{pin.segments:,}",
        )
        for pin in (case.pins if case is not None else ())
    ]


def growth_line(case: Case | None) -> str:
    """What rises from step to step, in a sentence; empty where no steps can be told apart or nothing rises."""
    growth = case.growth if case is not None else None
    if growth is None or growth.per_step_bytes <= 0:
        return ""
    return (
        f"Live memory rises by {format_bytes(growth.per_step_bytes)} a step ({format_bytes(growth.grown_bytes)} "
        f"in {growth.steps} steps; a step is {growth.period_source})."
    )


def growth_rows(case: Case | None) -> list[tuple[str, str]]:
    """``(line, bytes a step)`` of the lines that grow."""
    growth = case.growth if case is not None and growth_line(case) else None
    return [
        (str(site.site), format_bytes(site.per_step_bytes))
        for site in (growth.sites if growth is not None else ())
    ]


def rank_line(case: Case | None) -> str:
    """Which process of a run of several stands out, and by which line; empty for a single process."""
    ranks = case.ranks if case is not None else None
    if ranks is None:
        return ""
    if ranks.outlier is None:
        return f"{len(ranks.summaries)} ranks, none stands out (median peak active {format_bytes(ranks.median_active_peak)})"
    outlier = ranks.outlier
    where = "".join(
        f", {format_bytes(line.bytes)} of it at {line.site}" for line in outlier.sites[:1]
    )
    return f"rank {outlier.rank} of {len(ranks.summaries)} stands out: {format_bytes(outlier.over_bytes)} over the median of the others{where}"
