"""Statements: read back as written, and compared without crediting what cannot be credited."""

import json
from dataclasses import fields, replace
from pathlib import Path
from tempfile import TemporaryDirectory

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.checkpoint.sparse import write_sparse
from vramdoc.capacity.comparison import RESULTS, SAME_THING, check_statement
from vramdoc.capacity.plan import CapacityPlan
from vramdoc.capacity.request import CapacityRequest
from vramdoc.capacity.statement import (
    STATEMENT_SCHEMA,
    CapacityStatement,
    make_statement,
    read_statement,
    request_fields,
    revision_of,
)  # fmt: skip
from vramdoc.checkpoint import Checkpoint, read_checkpoint
from vramdoc.errors import UnreadableInput
from vramdoc.record.recording import DeviceInfo
from vramdoc.report.statement import render_statement_markdown

BEFORE = CapacityStatement(
    model="llama.safetensors", revision="abc", dtype="BF16", asked_dtype="", weight_bytes=16 << 30, run_by="plain", gpu="h100",
    device="NVIDIA H100", device_kind="virtual", device_bytes=80 << 30, foreign_bytes=0,
    versions={"torch": "2.13.0", "cuda": "13.0"}, alloc_conf="", cache="dynamic",
    workload="--workload fill", batch=1, seed=0, contexts=(8192,), sessions=(4,), kv_bytes_per_token=131072,
    supported=({"context": 8192, "sessions": 55, "source": "virtual GPU", "computed": 55, "headroom_bytes": 5, "rejects": 56, "session_bytes": 1 << 30},),
    only_with=({"context": 8192, "sessions": 60, "alloc_conf": "expandable_segments:True", "cache": ""},),
    ms_per_token={},
)  # fmt: skip
ROW = BEFORE.supported[0]
DEVICE = DeviceInfo(
    kind="virtual", name="NVIDIA H100", key="h100", total_bytes=80 << 30, compute_capability="9.0", multiprocessors=132
)  # fmt: skip
MODEL = Checkpoint(path=Path("m.safetensors"), kind="file", tensors={})


def with_sessions(statement: CapacityStatement, sessions: int) -> CapacityStatement:
    return replace(statement, supported=({**ROW, "sessions": sessions},))


def test_statement_is_read_as_it_was_written(tmp_path: Path) -> None:
    path = tmp_path / "s.json"
    path.write_text(json.dumps(BEFORE.to_json()))
    assert read_statement(path) == BEFORE
    path.write_text(json.dumps({"schema_version": 1, "grid": [], "statement": BEFORE.to_json()}))
    assert read_statement(path) == BEFORE


sizes = st.lists(st.integers(1, 1 << 20), min_size=1, max_size=3).map(tuple)
BY_KIND = {"int": st.integers(0, 1 << 40), "str": st.text(max_size=12), "tuple[int, ...]": sizes, "bool": st.booleans()}  # fmt: skip


@given(data=st.data())
def test_a_statement_asks_its_whole_question_again(data: st.DataObject) -> None:
    """Whatever shapes an answer is in the request, all of it is in the statement, and comes back out of the file."""
    request = CapacityRequest(
        **{item.name: data.draw(BY_KIND[str(item.type)], item.name) for item in fields(CapacityRequest)}
    )  # fmt: skip
    plan = CapacityPlan(
        request=request, kv_bytes_per_token=1, cells=(), borders=(), budgets=(), device=DEVICE, versions={}, weight_bytes=0,
        run_by="plain", ms_per_token={}, notes=(), workload_line=request.line(),
    )  # fmt: skip
    with TemporaryDirectory() as folder:
        path = Path(folder) / "s.json"
        path.write_text(json.dumps(make_statement(plan, MODEL).to_json()))
        kept = request_fields(read_statement(path))
    assert CapacityRequest(target="", **kept) == replace(request, target="", alternatives=True)


def test_every_condition_of_a_statement_is_compared() -> None:
    """Change any one field: what is not a result is named, and named alone."""
    other = {
        "int": 7,
        "str": "other",
        "tuple[int, ...]": (3,),
        "Mapping[str, str]": {"torch": "9.9"},
    }
    for item in fields(CapacityStatement):
        if item.name in RESULTS | SAME_THING:
            continue
        after = replace(with_sessions(BEFORE, 1), **{item.name: other[str(item.type)]})
        check = check_statement(BEFORE, after)
        assert {d.what.partition(".")[0] for d in check.conditions} == {item.name}
        assert "its doing" in check.credit


@pytest.mark.parametrize(
    ("changes", "credited"),
    [
        ({"device": "NVIDIA L4", "device_bytes": 24 << 30}, True),
        ({"versions": {"torch": "2.14.1", "cuda": "13.1"}}, True),
        ({"asked_dtype": "float16", "dtype": "float16"}, True),
        ({"device": "NVIDIA L4", "alloc_conf": "expandable_segments:True"}, False),
        ({"versions": {"torch": "2.14.1", "cuda": "13.0", "transformers": "5.24.0"}}, False),
        ({"batch": 2, "seed": 1}, False),
    ],
)
def test_what_comes_with_one_change_is_that_change(changes: dict, credited: bool) -> None:
    check = check_statement(BEFORE, with_sessions(replace(BEFORE, **changes), 50))
    assert len(check.conditions) >= 2
    assert ("its doing" in check.credit) is credited
    assert ("credited to none" in check.credit) is not credited


def test_nothing_changed_and_it_holds() -> None:
    check = check_statement(BEFORE, BEFORE)
    assert check.holds
    assert check.conditions == check.results == ()


def test_one_changed_condition_is_credited() -> None:
    after = with_sessions(replace(BEFORE, alloc_conf="expandable_segments:True"), 62)
    check = check_statement(BEFORE, after)
    assert check.holds
    assert [d.what for d in check.conditions] == ["alloc_conf"]
    assert "its doing: alloc_conf" in check.credit


def test_two_changed_conditions_are_credited_to_neither() -> None:
    after = with_sessions(
        replace(
            BEFORE,
            alloc_conf="expandable_segments:True",
            versions={"torch": "2.14.1", "cuda": "13.0"},
        ),
        50,
    )
    check = check_statement(BEFORE, after)
    assert not check.holds
    assert [d.what for d in check.conditions] == ["versions.torch", "alloc_conf"]
    assert [str(d) for d in check.results] == ["sessions at 8192 tokens: 55 -> 50"]
    assert "credited to none of them" in check.credit


def test_a_result_that_moves_by_itself_is_said_to() -> None:
    check = check_statement(BEFORE, with_sessions(BEFORE, 54))
    assert not check.holds
    assert "Nothing that a statement records has changed" in check.credit


def test_a_context_that_is_gone_does_not_hold() -> None:
    assert not check_statement(BEFORE, replace(BEFORE, supported=())).holds


def test_a_search_that_ended_early_decides_nothing() -> None:
    row = {**ROW, "sessions": 20, "rejects": None}
    assert check_statement(BEFORE, replace(BEFORE, supported=(row,))).holds is None
    assert (
        check_statement(BEFORE, replace(BEFORE, supported=({**row, "rejects": 21},))).holds is False
    )


@pytest.mark.parametrize(
    ("change", "says"),
    [
        ({"schema_version": STATEMENT_SCHEMA + 1}, "reads up to"),
        ({"schema_version": "1"}, "not a capacity statement"),
        ({"schema_version": True}, "not a capacity statement"),
        ({"supported": 3}, "supported is of another kind"),
        ({"supported": [3]}, "supported is of another kind"),
        ({"supported": [{"context": "x"}]}, "a row has no context"),
        ({"versions": []}, "versions is of another kind"),
        ({"versions": {"torch": 2}}, "versions is of another kind"),
        ({"seed": True}, "seed is of another kind"),
        ({"alloc_conf": None}, "alloc_conf is of another kind"),
        ({"contexts": ["8k"]}, "contexts is of another kind"),
    ],
)
def test_other_files_are_refused_in_one_line(tmp_path: Path, change: dict, says: str) -> None:
    path = tmp_path / "s.json"
    path.write_text(json.dumps({**BEFORE.to_json(), **change}))
    with pytest.raises(UnreadableInput, match=says) as refused:
        read_statement(path)
    assert "\n" not in str(refused.value)


def test_incomplete_statement_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "s.json"
    path.write_text('{"schema_version": 1}')
    with pytest.raises(UnreadableInput, match="model is missing"):
        read_statement(path)


def test_published_block_says_what_was_run_and_what_happens_beyond() -> None:
    text = render_statement_markdown(BEFORE)
    assert "| 8,192 | 55 | 1.00 GiB | 5 B | session 56 has to wait: it ends out of memory |" in text
    assert "60 sessions of 8,192 tokens fit only with `expandable_segments:True`." in text
    assert "a virtual device tells no times" in text
    real = replace(BEFORE, device_kind="real", ms_per_token={"8192": 21.5})
    assert "A token takes 21.5 ms at 8192 tokens" in render_statement_markdown(real)


def test_revision_is_that_of_the_hugging_face_cache_else_a_digest_of_the_shapes(
    tmp_path: Path,
) -> None:
    snapshot = tmp_path / "snapshots" / "0123abcd"
    snapshot.mkdir(parents=True)
    write_sparse(snapshot / "model.safetensors", {"a": ("BF16", (4,))})
    assert revision_of(read_checkpoint(snapshot)) == "0123abcd"
    one, same, other = (
        revision_of(
            read_checkpoint(
                write_sparse(tmp_path / f"{name}.safetensors", {"a": ("BF16", (size,))})
            )
        )
        for name, size in (("one", 4), ("same", 4), ("other", 5))
    )
    assert one == same != other
