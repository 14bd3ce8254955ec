"""The capacity statement: what a team can publish, and what can be held against a later one.

It is plain data that names everything which the answer depends on: model, device, versions, config, strategy, workload.
``check_statement`` compares two of them: every difference is named, and a change of the result is credited to a change of
the conditions only when exactly one condition changed. It runs nothing.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from dataclasses import asdict, dataclass, fields
from pathlib import Path
from typing import Any

from vramdoc.capacity.plan import CapacityPlan
from vramdoc.checkpoint import Checkpoint
from vramdoc.checkpoint.read import read_json_object
from vramdoc.errors import UnreadableInput
from vramdoc.units import format_bytes

STATEMENT_SCHEMA = 1

Supported = Mapping[str, Any]
"""One row: context, sessions, source, computed, headroom_bytes, rejects (the first that does not fit, or None)."""


@dataclass(frozen=True, slots=True, kw_only=True)
class CapacityStatement:
    """One measured answer and its conditions. Bytes are integers."""

    schema_version: int = STATEMENT_SCHEMA
    model: str
    revision: str
    """The Hugging Face revision where the folder shows it, else a digest of the names, types and shapes of all tensors."""
    dtype: str
    weight_bytes: int
    device: str
    device_kind: str
    """``"real"`` or ``"virtual"``."""
    device_bytes: int
    versions: Mapping[str, str]
    alloc_conf: str
    cache: str
    workload: str
    batch: int
    seed: int
    kv_bytes_per_token: int
    supported: tuple[Supported, ...]
    only_with: tuple[Mapping[str, Any], ...]
    """Cells that fit only with another config or strategy."""
    ms_per_token: Mapping[str, float]
    """By context, on a real device; empty on a virtual one."""

    def to_json(self) -> dict[str, Any]:
        """Plain values with sorted keys, for ``json.dumps``."""
        plain: dict[str, Any] = json.loads(json.dumps(asdict(self), sort_keys=True))
        return plain


CONDITIONS = (
    "model", "revision", "dtype", "weight_bytes", "device", "device_kind", "device_bytes", "versions", "alloc_conf", "cache",
    "workload", "batch", "seed",
)  # fmt: skip
"""What the result depends on."""


def make_statement(plan: CapacityPlan, checkpoint: Checkpoint) -> CapacityStatement:
    """The statement of ``plan``; it names the model by its own name, never by where it lies."""
    source = "measured" if plan.device.kind == "real" else "virtual GPU"
    return CapacityStatement(
        model=checkpoint.path.name,
        revision=revision_of(checkpoint),
        dtype=plan.request.dtype or checkpoint.floating_dtype,
        weight_bytes=plan.weight_bytes,
        device=plan.device.name,
        device_kind=plan.device.kind,
        device_bytes=plan.device.total_bytes,
        versions=dict(plan.versions),
        alloc_conf=plan.request.alloc_conf,
        cache=plan.request.cache,
        workload=plan.workload_line,
        batch=plan.request.batch,
        seed=plan.request.seed,
        kv_bytes_per_token=plan.kv_bytes_per_token,
        supported=tuple(
            {
                "context": border.context, "sessions": border.sessions, "source": source, "computed": border.computed,
                "headroom_bytes": border.headroom, "rejects": None if border.open_ended else border.sessions + 1,
            }
            for border in plan.borders
        ),
        only_with=tuple(
            {"context": cell.context, "sessions": cell.sessions, "alloc_conf": cell.with_config, "cache": cell.with_cache}
            for cell in plan.cells
            if cell.with_config or cell.with_cache
        ),
        ms_per_token={str(context): round(time, 3) for context, time in plan.ms_per_token.items()},
    )  # fmt: skip


def revision_of(checkpoint: Checkpoint) -> str:
    """``snapshots/<revision>/`` of a Hugging Face cache, else a digest of what the headers say."""
    folder = checkpoint.folder.absolute()
    if folder.parent.name == "snapshots":
        return folder.name
    described = sorted((t.name, t.dtype, t.shape) for t in checkpoint.tensors.values())
    return "headers-" + hashlib.sha256(repr(described).encode()).hexdigest()[:16]


def read_statement(path: Path) -> CapacityStatement:
    """Read what ``to_json`` wrote; unknown keys of the same schema are ignored.

    Raises:
        UnreadableInput: no statement, an incomplete one, or one of a newer schema.
    """
    data = read_json_object(path)
    data = data.get("statement", data)  # the whole output of ``capacity --json`` will do
    schema = data.get("schema_version") if isinstance(data, dict) else None
    if not isinstance(schema, int) or isinstance(schema, bool):
        raise UnreadableInput(
            f"{path.name} is not a capacity statement",
            "write one with: vramdoc capacity MODEL --json",
        )
    if schema > STATEMENT_SCHEMA:
        raise UnreadableInput(
            f"{path.name} has schema {schema}; this vramdoc reads up to {STATEMENT_SCHEMA}",
            "pip install --upgrade vramdoc",
        )
    missing = [field.name for field in fields(CapacityStatement) if field.name not in data]
    if missing:
        raise UnreadableInput(
            f"{path.name} is not a whole capacity statement: {missing[0]} is missing"
        )
    kept = {field.name: data[field.name] for field in fields(CapacityStatement)}
    _check_rows(path, kept)
    kept["supported"], kept["only_with"] = tuple(kept["supported"]), tuple(kept["only_with"])
    return CapacityStatement(**kept)


def _check_rows(path: Path, data: Mapping[str, Any]) -> None:
    rows = data["supported"]
    if (
        not isinstance(rows, list)
        or not isinstance(data["only_with"], list)
        or not isinstance(data["versions"], dict)
    ):
        raise UnreadableInput(f"{path.name} is not a capacity statement: a table is missing")
    for row in rows:
        if not isinstance(row, dict) or not all(
            isinstance(row.get(key), int) for key in ("context", "sessions")
        ):
            raise UnreadableInput(
                f"{path.name} is not a capacity statement: a row has no context or no sessions"
            )


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

    holds: bool
    """Everything that the old one supports, the new one supports too."""
    conditions: tuple[Difference, ...]
    results: tuple[Difference, ...]
    credit: str
    """Which change explains the results, or why none is named."""


def check_statement(old: CapacityStatement, new: CapacityStatement) -> StatementCheck:
    """Compare two statements, of before and after."""
    conditions = tuple(_differences(old, new))
    now = {row["context"]: row["sessions"] for row in new.supported}
    results = tuple(
        Difference(f"sessions at {row['context']} tokens", row["sessions"], now.get(row["context"]))
        for row in old.supported
        if now.get(row["context"]) != row["sessions"]
    )
    holds = all((now.get(row["context"]) or 0) >= row["sessions"] for row in old.supported)
    return StatementCheck(
        holds=holds, conditions=conditions, results=results, credit=_credit(conditions, results)
    )


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
    if len(conditions) == 1:
        return f"Exactly one condition changed, so the result is its doing: {conditions[0]}."
    names = ", ".join(item.what for item in conditions)
    return (
        f"{len(conditions)} conditions changed at once ({names}), so the result is credited to none of them: "
        "change one at a time."
    )


def statement_markdown(statement: CapacityStatement) -> str:
    """The block that a team publishes."""
    rows = [
        f"| {row['context']:,} | {row['sessions']} | {format_bytes(row['headroom_bytes'])} | {_condition(row)} |"
        for row in statement.supported
    ]
    versions = ", ".join(
        f"{name} {version}" for name, version in sorted(statement.versions.items())
    )
    lines = [
        f"### Capacity of {statement.model}",
        "",
        f"- **Model** revision `{statement.revision}`, {statement.dtype}, weights {format_bytes(statement.weight_bytes)}",
        f"- **KV cache** {format_bytes(statement.kv_bytes_per_token)} a token, strategy `{statement.cache}`",
        f"- **Device** {statement.device}, {format_bytes(statement.device_bytes)} ({statement.device_kind})",
        f"- **Versions** {versions}",
        f"- **Allocator** `{statement.alloc_conf or 'default'}`",
        f"- **Workload** `{statement.workload}`",
        "",
        "| Context (tokens) | Sessions | Left at the peak | Beyond |",
        "|--:|--:|--:|:--|",
        *rows,
        "",
        _how_known(statement),
    ]
    lines += [
        f"{item['sessions']} sessions of {item['context']:,} tokens fit only with `{item['alloc_conf'] or item['cache']}`."
        for item in statement.only_with
    ]
    lines += [
        f"A token takes {time} ms at {context} tokens, one session at a time."
        for context, time in sorted(statement.ms_per_token.items(), key=lambda item: int(item[0]))
    ]
    if statement.device_kind != "real":
        lines.append("Memory only: a virtual device tells no times.")
    return "\n".join(lines) + "\n"


def _condition(row: Supported) -> str:
    if row.get("rejects") is None:
        return "not searched further"
    return f"session {row['rejects']} has to wait: it ends out of memory"


def _how_known(statement: CapacityStatement) -> str:
    if not statement.supported:
        return "Nothing was asked."
    return f"Both sides of every border were run ({statement.supported[0]['source']}); what lies below follows from it."
