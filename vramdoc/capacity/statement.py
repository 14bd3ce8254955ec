"""The capacity statement: what a team can publish, and what can be held against a later one.

It is plain data that names everything which the answer depends on: model, device, versions, config, strategy, workload. It
runs nothing; ``comparison`` holds two of them against each other.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from dataclasses import asdict, dataclass, fields
from pathlib import Path
from typing import Any, get_origin, get_type_hints

from vramdoc.capacity.plan import CapacityPlan
from vramdoc.capacity.request import CapacityRequest
from vramdoc.checkpoint import Checkpoint
from vramdoc.checkpoint.read import read_json_object
from vramdoc.errors import UnreadableInput

STATEMENT_SCHEMA = 1

Supported = Mapping[str, Any]
"""One row: context, sessions, source, computed, headroom_bytes, rejects (the first that does not fit, or None), and
session_bytes: what one more session was seen to keep, by the strategy and with the allocator's rounding."""


@dataclass(frozen=True, slots=True, kw_only=True)
class CapacityStatement:
    """One measured answer and its conditions. Bytes are integers."""

    schema_version: int = STATEMENT_SCHEMA
    model: str
    revision: str
    """The Hugging Face revision where the folder shows it, else a digest of config.json and of all tensors' names and shapes."""
    dtype: str
    """What is computed in: the type asked for, else the checkpoint's own."""
    asked_dtype: str
    """What ``--dtype`` asked for; empty for the checkpoint's own."""
    weight_bytes: int
    run_by: str
    """The class that ran: transformers' own, or the plain transformer."""
    gpu: str
    """What asks for the device again: ``"rtx4090"``, ``"24GiB"``, ``"cuda:0"``."""
    device: str
    device_kind: str
    """``"real"`` or ``"virtual"``."""
    device_bytes: int
    foreign_bytes: int
    """Of a virtual device: what other processes were said to hold."""
    versions: Mapping[str, str]
    alloc_conf: str
    cache: str
    workload: str
    """The other conditions as options of the command line."""
    batch: int
    seed: int
    contexts: tuple[int, ...]
    sessions: tuple[int, ...]
    """The grid that was asked for."""
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


STATED_AS: Mapping[str, str] = {
    name: {"dtype": "asked_dtype"}.get(name, name)
    for name in (field.name for field in fields(CapacityRequest))
    if name not in {"target", "alternatives"}
}
"""Each field of a request that shapes the answer, and the field of the statement that keeps it. A path is private, and what
else would fit is not part of what is supported."""


def request_fields(statement: CapacityStatement) -> dict[str, Any]:
    """The question that ``statement`` answers, as fields of a CapacityRequest: all of them, so that it can be asked again."""
    return {name: getattr(statement, stated) for name, stated in STATED_AS.items()}


def make_statement(plan: CapacityPlan, checkpoint: Checkpoint) -> CapacityStatement:
    """The statement of ``plan``; it names the model by its own name, never by where it lies."""
    source = "measured" if plan.device.kind == "real" else "virtual GPU"
    held = {budget.context: budget.per_session for budget in plan.budgets}
    return CapacityStatement(
        **{stated: getattr(plan.request, name) for name, stated in STATED_AS.items()},
        model=checkpoint.path.name,
        revision=revision_of(checkpoint),
        dtype=plan.request.dtype or checkpoint.floating_dtype,
        weight_bytes=plan.weight_bytes,
        run_by=plan.run_by,
        gpu=plan.device.key,
        device=plan.device.name,
        device_kind=plan.device.kind,
        device_bytes=plan.device.total_bytes,
        versions=dict(plan.versions),
        workload=plan.workload_line,
        kv_bytes_per_token=plan.kv_bytes_per_token,
        supported=tuple(
            {
                "context": border.context, "sessions": border.sessions, "source": source, "computed": border.computed,
                "headroom_bytes": border.headroom, "rejects": None if border.open_ended else border.sessions + 1,
                "session_bytes": held.get(border.context),
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
    """``snapshots/<revision>/`` of a Hugging Face cache, else a digest of config.json and of what the headers say."""
    folder = checkpoint.folder.absolute()
    if folder.parent.name == "snapshots":
        return folder.name
    described = sorted((t.name, t.dtype, t.shape) for t in checkpoint.tensors.values())
    config = json.dumps(checkpoint.config, sort_keys=True)
    return "headers-" + hashlib.sha256(repr((described, config)).encode()).hexdigest()[:16]


def read_statement(path: Path) -> CapacityStatement:
    """Read what ``to_json`` wrote; unknown keys of the same schema are ignored.

    Raises:
        UnreadableInput: no statement, an incomplete one, one with values of other kinds, or one of a newer schema.
    """
    data = read_json_object(path)
    data = data.get("statement", data)  # the whole output of ``capacity --json`` will do
    schema = data.get("schema_version") if isinstance(data, dict) else None
    if type(schema) is not int:
        raise UnreadableInput(
            f"{path.name} is not a capacity statement",
            "write one with: vramdoc capacity MODEL --json",
        )
    if schema > STATEMENT_SCHEMA:
        raise UnreadableInput(
            f"{path.name} has schema {schema}; this vramdoc reads up to {STATEMENT_SCHEMA}",
            "pip install --upgrade vramdoc",
        )
    kinds = get_type_hints(CapacityStatement)
    missing = [name for name in kinds if name not in data]
    if missing:
        raise UnreadableInput(
            f"{path.name} is not a whole capacity statement: {missing[0]} is missing"
        )
    strange = [name for name, kind in kinds.items() if not _fits(data[name], kind)]
    if strange:
        raise UnreadableInput(
            f"{path.name} is not a capacity statement: {strange[0]} is of another kind"
        )
    if not all(
        _fits(row.get(key), int) for row in data["supported"] for key in ("context", "sessions")
    ):
        raise UnreadableInput(
            f"{path.name} is not a capacity statement: a row has no context or no sessions"
        )
    kept: dict[str, Any] = {
        name: tuple(data[name]) if get_origin(kind) is tuple else data[name]
        for name, kind in kinds.items()
    }
    return CapacityStatement(**kept)


def _fits(value: object, kind: Any) -> bool:
    """Whether a value from JSON is what a field of type ``kind`` holds; ``True`` is no number here."""
    if kind in {int, str}:
        return type(value) is kind
    if kind is float:
        return type(value) in {int, float}
    if kind is Any:
        return not isinstance(value, (list, dict))
    if get_origin(kind) is tuple:
        return isinstance(value, list) and all(_fits(item, kind.__args__[0]) for item in value)
    return isinstance(value, dict) and all(_fits(item, kind.__args__[1]) for item in value.values())
