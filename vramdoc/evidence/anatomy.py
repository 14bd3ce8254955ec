"""The anatomy of a failed request as a crash text tells it: torch's own numbers with the characters they were read from.

One failure is taken: the first that carries figures. It recognises no text (``crashlog``) and knows no snapshot (``failed_request``).
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

from vramdoc.crashlog.incident import CrashLog, Incident, Reading
from vramdoc.evidence.oom import OomAnatomy
from vramdoc.facts import Fact, Source

NUMBERED = ("cuda-oom", "xpu-oom", "async-oom", "mps-oom")
"""Kinds of incidents that carry the figures of a failed request."""
_PRINTED = (
    "requested",
    "total",
    "free",
    "allocated",
    "unallocated",
    "reserved",
    "private_pools",
    "allowed",
    "process",
)
_FURTHER = ("cached", "other_allocations", "overflow")


def anatomy_from_crash(log: CrashLog) -> OomAnatomy | None:
    """The first failed request with figures; None when the text holds none."""
    incident = failed_request(log)
    return None if incident is None else anatomy_of(incident, log)


def failed_request(log: CrashLog) -> Incident | None:
    """The incident to judge by: the first whose requested size is printed, so the rank that failed first."""
    numbered = log.all(*NUMBERED)
    return next(
        (i for i in numbered if "total" in i.readings or "allowed" in i.readings), None
    ) or next((i for i in numbered if {"requested", "overflow"} & i.readings.keys()), None)


def anatomy_of(incident: Incident, log: CrashLog) -> OomAnatomy:
    """One incident's figures. "cached" of torch 1.0 to 1.3 excludes what is allocated, so it is the unallocated figure."""
    readings = incident.readings
    facts = {name: _fact(name, readings[name]) for name in _PRINTED if _is_size(readings, name)}
    if _is_size(readings, "cached"):
        facts["unallocated"] = _fact("unallocated", readings["cached"])
    processes = [
        _fact(f"process_{readings[f'pid_{n}'].value}", readings[f"process_{n}"])
        for n in range(1, 1 + sum(name.startswith("pid_") for name in readings))
        if _is_size(readings, f"process_{n}")
    ]
    further = {name: _fact(name, readings[name]) for name in _FURTHER if name in readings}
    further["rounding"] = _rounding(readings)
    further["backend"] = Fact(
        "backend", incident.kind.removesuffix("-oom"), "text", Source.READ, incident.wording
    )
    if "process" not in facts and (
        hidden := _hidden_process(facts, processes, further["rounding"])
    ):
        processes.remove(hidden)
        further["hidden_process"] = hidden
        facts["process"] = replace(hidden, name="process")
    device = readings.get("device")
    return OomAnatomy(
        **facts,
        other_processes=tuple(processes),
        expandable_on=_expandable(log),
        device=device.value if device and isinstance(device.value, int) else None,
        text=incident.text,
        extra=further,
    )


def _hidden_process(
    facts: Mapping[str, Fact], processes: list[Fact], rounding: Fact
) -> Fact | None:
    """The listed process that is this one.

    In a container NVML knows the own process by a pid that the process itself does not, so it stands among the others: it
    is the one that can hold the reserved bytes and is closest to them (failure-pattern catalogue 3.3).
    """
    if not {"allocated", "unallocated"} <= facts.keys():
        return None
    least = int(facts["allocated"].value) + int(facts["unallocated"].value) - int(rounding.value)
    fitting = [fact for fact in processes if int(fact.value) >= least]
    return min(fitting, key=lambda fact: int(fact.value), default=None)


def _is_size(readings: Mapping[str, Reading], name: str) -> bool:
    """Whether a figure was printed; 2**64 bytes, which say that nobody knew, stay text."""
    return name in readings and isinstance(readings[name].value, int)


def _fact(name: str, value: Reading) -> Fact:
    unit = "bytes" if isinstance(value.value, int) else "text"
    return Fact(
        name,
        value.value,
        unit,
        Source.READ,
        f"characters {value.start}-{value.end}: {value.text!r}",
    )


def _rounding(readings: Mapping[str, Reading]) -> Fact:
    """How far a sum of all printed figures can be from the truth: half a last digit each."""
    return Fact(
        "rounding",
        sum(r.tolerance for r in readings.values()),
        "bytes",
        Source.READ,
        "two decimals a figure",
    )


def _expandable(log: CrashLog) -> bool | None:
    """Whether a setting in the text switches expandable segments; None where no setting is visible."""
    if log.alloc_conf is None:
        return None
    return "expandable_segments:True" in log.alloc_conf.replace(" ", "")
