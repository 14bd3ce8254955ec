"""Two capacity statements, of before and after: every difference named, and credit only where one thing changed.

What became of a statement is decided here; how the second one came about is the planner's business.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, fields
from typing import Any

from vramdoc.capacity.statement import CapacityStatement, Supported

RESULTS = frozenset({"kv_bytes_per_token", "supported", "only_with", "ms_per_token"})
"""What was found out."""
SAME_THING = frozenset({"schema_version", "gpu", "workload", "contexts", "sessions"})
"""What says nothing of its own: ``gpu`` is how a person spelled the device, ``workload`` repeats other fields, and the grid
decides which rows there are."""
CONDITIONS = tuple(
    item.name for item in fields(CapacityStatement) if item.name not in RESULTS | SAME_THING
)
"""What the result depends on: everything else, so that a new field is compared from its first day."""

ONE_CHANGE: Mapping[str, str] = {
    "revision": "model", "weight_bytes": "model", "dtype": "dtype", "asked_dtype": "dtype", "device_bytes": "device",
    "versions.cuda": "versions.torch", "versions.hip": "versions.torch", "versions.triton": "versions.torch",
}  # fmt: skip
"""Conditions that come with another one: another GPU has another size, and a wheel of torch brings its CUDA and Triton."""


@dataclass(frozen=True, slots=True)
class Difference:
    """One thing that two statements say differently."""

    what: str
    """``"versions.torch"``, ``"alloc_conf"``, ``"sessions at 8192 tokens"`` ..."""
    before: Any
    after: Any

    def __str__(self) -> str:
        return f"{self.what}: {self.before} -> {self.after}"


@dataclass(frozen=True, slots=True, kw_only=True)
class StatementCheck:
    """What became of a statement."""

    holds: bool | None
    """Everything that the old one supports, the new one supports too; None where the new search ended before it could tell."""
    conditions: tuple[Difference, ...]
    results: tuple[Difference, ...]
    credit: str
    """Which change explains the results, or why none is named."""


def check_statement(old: CapacityStatement, new: CapacityStatement) -> StatementCheck:
    """Compare two statements, of before and after."""
    conditions = tuple(_differences(old, new))
    now = {row["context"]: row for row in new.supported}
    kept = [_still_supports(row, now.get(row["context"])) for row in old.supported]
    results = tuple(
        Difference(f"sessions at {row['context']} tokens", row["sessions"], after)
        for row in old.supported
        if (after := now.get(row["context"], {}).get("sessions")) != row["sessions"]
    )
    return StatementCheck(
        holds=False if False in kept else None if None in kept else True,
        conditions=conditions,
        results=results,
        credit=_credit(conditions, results),
    )


def _still_supports(before: Supported, after: Supported | None) -> bool | None:
    if after is None:
        return False
    if after["sessions"] >= before["sessions"]:
        return True
    # nothing was refused there: host memory, for one, bounds how many offloaded caches can be run
    return None if after["rejects"] is None else False


def _differences(old: CapacityStatement, new: CapacityStatement) -> list[Difference]:
    found = []
    for name in CONDITIONS:
        before, after = getattr(old, name), getattr(new, name)
        if isinstance(before, Mapping) and isinstance(after, Mapping):
            keys = sorted(before.keys() | after.keys())
            found += [
                Difference(f"{name}.{key}", before.get(key), after.get(key))
                for key in keys
                if before.get(key) != after.get(key)
            ]
        elif before != after:
            found.append(Difference(name, before, after))
    return found


def _credit(conditions: tuple[Difference, ...], results: tuple[Difference, ...]) -> str:
    if not results:
        return "The supported contexts and sessions are the same."
    if not conditions:
        return "Nothing that a statement records has changed; look at what it does not: the driver's settings, other processes."
    changes = dict.fromkeys(ONE_CHANGE.get(item.what, item.what) for item in conditions)
    if len(changes) == 1:
        return f"Exactly one condition changed, so the result is its doing: {'; '.join(map(str, conditions))}."
    return (
        f"{len(changes)} conditions changed at once ({', '.join(changes)}), so the result is credited to none of them: "
        "change one at a time."
    )
