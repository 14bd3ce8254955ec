"""The border on a virtual GPU: computed before it is run, and both of its sides run."""

import json
from dataclasses import replace
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from examples.make_model import SHAPES, write
from tests.checkpoint.sparse import linear_tensors, write_sparse
from tests.virtual_gpu.child import torch_build
from vramdoc.allocator import AllocatorConfig
from vramdoc.capacity.border import search
from vramdoc.capacity.budget import budget_of
from vramdoc.capacity.plan import CapacityPlan, plan_capacity
from vramdoc.capacity.request import CapacityRequest, runner
from vramdoc.capacity.session_stream import session_stream
from vramdoc.capacity.simulate import simulate
from vramdoc.capacity.statement import make_statement
from vramdoc.checkpoint import infer_shape, read_checkpoint
from vramdoc.checkpoint.kv import layout_of_shape
from vramdoc.errors import ChildProblem, UsageError
from vramdoc.facts import Source
from vramdoc.report.statement import render_statement_markdown

GPU = "1GiB"


@given(border=st.integers(0, 60), most=st.integers(0, 50), guess=st.integers(-5, 90))
def test_search_finds_the_border_of_anything_monotone(border: int, most: int, guess: int) -> None:
    asked: list[int] = []

    def fits(n: int) -> bool:
        asked.append(n)
        return n <= border

    assert search(fits, guess, most) == min(border, most)
    assert all(1 <= n <= most for n in asked)
    assert len(asked) == len(set(asked))


@pytest.fixture(scope="module")
def tiny(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("tiny")
    write(folder / "m.safetensors", "tiny", "BF16")
    return folder / "m.safetensors"


@pytest.fixture(scope="module")
def plan(tiny: Path, tmp_path_factory: pytest.TempPathFactory) -> CapacityPlan:
    torch_build()
    request = CapacityRequest(target=str(tiny), contexts=(4096,), sessions=(1, 7, 32), batch=8)
    root = tmp_path_factory.mktemp("recordings")
    return plan_capacity(request, read_checkpoint(tiny), runner(GPU, root))


@pytest.mark.virtual_gpu
def test_border_is_computed_and_then_run_on_both_sides(plan: CapacityPlan) -> None:
    (border,) = plan.borders
    assert border.computed == border.sessions
    assert 7 < border.sessions < 32
    assert not border.open_ended
    assert border.short_by > 0
    assert 0 <= border.headroom < border.reserved_peak


@pytest.mark.virtual_gpu
def test_cells_say_whether_they_fit_and_how_that_is_known(plan: CapacityPlan) -> None:
    by_sessions = {cell.sessions: cell for cell in plan.cells}
    assert [by_sessions[n].fits for n in (1, 7, 32)] == [True, True, False]
    assert by_sessions[7].source is Source.REPLAYED
    assert by_sessions[32].short_by > 32 * 2**20
    # int4 holds a quarter of the bytes, and was run
    assert by_sessions[32].with_cache in {"int8", "int4"}
    assert by_sessions[32].alternative_source is Source.VIRTUAL_GPU


@pytest.mark.virtual_gpu
def test_budget_adds_up_to_the_device(plan: CapacityPlan) -> None:
    (budget,), (border,) = plan.budgets, plan.borders
    assert budget.kv_formula == 8 * 4096 * plan.kv_bytes_per_token // 8
    assert budget.per_session == pytest.approx(budget.kv_formula, rel=0.01)
    assert budget.active_needed(border.sessions) == pytest.approx(border.active_peak, rel=0.02)
    slack = border.reserved_peak - border.active_peak
    assert budget.outside + border.active_peak + slack + border.headroom == budget.total


@pytest.mark.virtual_gpu
def test_statement_of_a_plan_names_what_was_run_and_no_folder(
    plan: CapacityPlan, tiny: Path
) -> None:
    statement = make_statement(plan, read_checkpoint(tiny))
    text = render_statement_markdown(statement) + json.dumps(statement.to_json())
    assert str(tiny.parent) not in text
    assert "virtual GPU" in text
    assert "Memory only" in text
    assert statement.supported[0]["sessions"] == plan.borders[0].sessions


@pytest.mark.virtual_gpu
@pytest.mark.parametrize("alloc_conf", ["", "expandable_segments:True"])
def test_three_sessions_foretell_ten_to_the_byte(
    tiny: Path, tmp_path: Path, alloc_conf: str
) -> None:
    """The pattern of three, repeated in the simulator, is what the real allocator does with ten."""
    torch_build()
    request = CapacityRequest(target=str(tiny), alloc_conf=alloc_conf)
    run = runner("8GiB", tmp_path)
    three, ten = (run(request.spec(1500, n), alloc_conf) for n in (3, 10))
    stream = session_stream(three)
    assert stream.steady
    budget = budget_of(three.manifest, layout_of_shape(infer_shape(read_checkpoint(tiny))), 1500, 1)
    assert budget is not None
    config = AllocatorConfig.parse(
        alloc_conf, release=three.manifest.versions["torch"].partition("+")[0]
    )
    for sessions, recording in ((3, three), (10, ten)):
        simulated = simulate(
            stream, sessions, config=config, capacity=budget.total, in_use=budget.outside
        )
        stats = recording.manifest.statistics
        assert simulated.reserved_peak == stats["reserved_bytes.all.peak"]
        assert simulated.active_peak == stats["active_bytes.all.peak"]


@pytest.mark.virtual_gpu
def test_weights_that_do_not_fit_are_said_so_after_one_run(tmp_path: Path) -> None:
    torch_build()
    write(tmp_path / "m.safetensors", "llama-3-8b", "BF16")
    asked = []
    run = runner("8GiB", tmp_path / "r", progress=asked.append)
    request = CapacityRequest(
        target=str(tmp_path / "m.safetensors"), contexts=(2048,), sessions=(1,)
    )
    plan = plan_capacity(request, read_checkpoint(request.target), run)
    assert len(asked) == 1
    assert plan.borders[0].sessions == 0
    assert plan.cells[0].short_by > 7 << 30
    assert "session 1 has to wait" in render_statement_markdown(
        make_statement(plan, read_checkpoint(request.target))
    )


@pytest.mark.virtual_gpu
def test_a_run_that_fails_otherwise_is_no_answer(tiny: Path, tmp_path: Path) -> None:
    """The virtual GPU has no cudaMallocAsync: that a run ends there does not say that nothing fits."""
    torch_build()
    request = CapacityRequest(target=str(tiny), alloc_conf="backend:cudaMallocAsync")
    with pytest.raises(ChildProblem, match="says nothing about memory"):
        plan_capacity(request, read_checkpoint(tiny), runner(GPU, tmp_path))


def never(spec: object, alloc_conf: str) -> object:
    raise AssertionError("nothing may be run for a request that cannot be answered")


@pytest.mark.parametrize(
    ("changes", "says"),
    [
        ({"contexts": (0,)}, "context must be positive"),
        ({"contexts": (-5, 100)}, "context must be positive"),
        ({"contexts": ()}, "context must be positive"),
        ({"contexts": (1,)}, "at least two tokens"),
        ({"sessions": (0,)}, "sessions must be positive"),
        ({"batch": 0}, "batch must be positive"),
        ({"contexts": (1 << 20,)}, "beyond the model's own limit of 4,096"),
    ],
)
def test_bad_requests_are_refused_before_anything_runs(
    tmp_path: Path, changes: dict, says: str
) -> None:
    write(tmp_path / "model.safetensors", "tiny", "BF16")
    (tmp_path / "config.json").write_text(json.dumps(SHAPES["tiny"][1]))
    request = replace(CapacityRequest(target=str(tmp_path)), **changes)
    with pytest.raises(UsageError, match=says):
        plan_capacity(request, read_checkpoint(tmp_path), never)


def test_models_without_a_cache_are_refused(tmp_path: Path) -> None:
    path = write_sparse(tmp_path / "m.safetensors", linear_tensors({"embeddings.weight": (100, 8)}))
    with pytest.raises(UsageError, match="embedding table"):
        plan_capacity(CapacityRequest(target=str(path)), read_checkpoint(path), never)


@pytest.mark.virtual_gpu
def test_what_a_run_misses_is_what_its_failed_request_lacked(tmp_path: Path) -> None:
    """Too few sessions fit to compute any: the shortage is that of the run, not one byte."""
    torch_build()
    path = tmp_path / "m.safetensors"
    write(path, "tiny", "BF16")
    request = CapacityRequest(
        target=str(path), contexts=(4096,), sessions=(2,), batch=128, alternatives=False
    )
    plan = plan_capacity(request, read_checkpoint(path), runner(GPU, tmp_path / "r"))
    (border,), (cell,) = plan.borders, plan.cells
    assert border.computed is None
    assert border.sessions < 2
    assert cell.short_by >= 2 << 20
