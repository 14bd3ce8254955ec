"""infer_shape: published shapes, every way to store a weight, and an answer for what is no transformer."""

import contextlib
import json
import struct
from pathlib import Path

import pytest
import torch
import transformers
from hypothesis import given, settings
from hypothesis import strategies as st

from examples.make_model import SHAPES, configured, write
from tests.checkpoint.sparse import linear_tensors, write_sparse
from vramdoc.checkpoint import (
    DecoderShape,
    EncoderShape,
    OtherShape,
    default_workload,
    infer_shape,
    read_checkpoint,
)
from vramdoc.checkpoint.config import ALIASES
from vramdoc.checkpoint.kv import layout_of_shape
from vramdoc.checkpoint.kv_config import kv_layout
from vramdoc.checkpoint.shape import (
    Attention,
    Experts,
    LatentAttention,
    Storage,
    Sureness,
    block_projections,
)
from vramdoc.errors import UnreadableInput

KV_BYTES = {
    "llama-3-8b": 128 << 10, "llama-3-70b": 320 << 10, "qwen2.5-7b": 56 << 10, "mistral-7b": 128 << 10,
    "mixtral-8x7b": 128 << 10, "gemma-2-9b": 336 << 10, "deepseek-v2-lite": 27 * (512 + 64) * 2, "phi-3-mini": 384 << 10,
    "gpt2": 36 << 10, "gpt-neox": 44 * 2 * 6144 * 2, "falcon-7b": 32 * 2 * 64 * 2,
    "tiny": 4 * 2 * 2 * 32 * 2,
}  # fmt: skip
"""Bytes a token as the papers and model cards have them."""


@pytest.mark.parametrize("name", SHAPES)
def test_published_shape_is_read_from_names_alone(tmp_path: Path, name: str) -> None:
    write(tmp_path / "m.safetensors", name, "BF16")
    checkpoint = read_checkpoint(tmp_path / "m.safetensors")
    shape = infer_shape(checkpoint)
    assert isinstance(shape, DecoderShape)
    assert layout_of_shape(shape).bytes_per_token == KV_BYTES[name]
    assert shape.unused == ()  # exactly these parameters
    assert default_workload(checkpoint) == "chat"


def shape_of(
    tmp_path: Path, tensors: dict, config: dict | None = None, contents: dict | None = None
):
    write_sparse(tmp_path / "model.safetensors", tensors, contents)
    if config is not None:
        (tmp_path / "config.json").write_text(json.dumps(config))
    return infer_shape(read_checkpoint(tmp_path / "model.safetensors"))


LAYER = "model.layers.0"
OUTSIDE = {
    "model.embed_tokens.weight": (1000, 512),
    "model.norm.weight": (512,),
    "lm_head.weight": (1000, 512),
}
NORMS = {
    f"{LAYER}.input_layernorm.weight": (512,),
    f"{LAYER}.post_attention_layernorm.weight": (512,),
}
PRODUCTS = {
    "self_attn.q_proj": (512, 512), "self_attn.k_proj": (128, 512), "self_attn.v_proj": (128, 512),
    "self_attn.o_proj": (512, 512), "mlp.gate_proj": (1024, 512), "mlp.up_proj": (1024, 512), "mlp.down_proj": (512, 1024),
}  # fmt: skip


def gptq(outputs: int, inputs: int) -> dict:
    return {"qweight": ("I32", (inputs // 8, outputs)), "qzeros": ("I32", (inputs // 128, outputs // 8)),
            "scales": ("F16", (inputs // 128, outputs)), "g_idx": ("I32", (inputs,))}  # fmt: skip


def gptq_without_index(outputs: int, inputs: int) -> dict:
    return {part: described for part, described in gptq(outputs, inputs).items() if part != "g_idx"}


def awq(outputs: int, inputs: int) -> dict:
    return {"qweight": ("I32", (inputs, outputs // 8)), "qzeros": ("I32", (inputs // 128, outputs // 8)),
            "scales": ("F16", (inputs // 128, outputs))}  # fmt: skip


def fp8(outputs: int, inputs: int) -> dict:
    return {
        "weight": ("F8_E4M3", (outputs, inputs)),
        "weight_scale_inv": ("F32", (outputs // 128, inputs // 128)),
    }


def int8(outputs: int, inputs: int) -> dict:
    return {"weight": ("I8", (outputs, inputs)), "SCB": ("F32", (outputs,))}


def nf4(outputs: int, inputs: int) -> dict:
    state = json.dumps({"shape": [outputs, inputs]}).encode()
    return {"weight": ("U8", (outputs * inputs // 2, 1)), "weight.absmax": ("F32", (outputs * inputs // 64,)),
            "weight.quant_state.bitsandbytes__nf4": ("U8", (len(state),))}  # fmt: skip


def packed(outputs: int, inputs: int) -> dict:
    return {"weight_packed": ("I32", (outputs, inputs // 8)), "weight_scale": ("BF16", (outputs, inputs // 128)),
            "weight_shape": ("I64", (2,))}  # fmt: skip


def test_a_quantisation_state_of_absurd_depth_is_none(tmp_path: Path) -> None:
    tensors, contents = dict(linear_tensors({**OUTSIDE, **NORMS}, "F16")), {}
    for name, (outputs, inputs) in PRODUCTS.items():
        for part, described in nf4(outputs, inputs).items():
            is_state = "quant_state" in part
            tensors[f"{LAYER}.{name}.{part}"] = ("U8", (4096,)) if is_state else described
            if is_state:
                contents[f"{LAYER}.{name}.{part}"] = b"[" * 4096
    assert not isinstance(shape_of(tmp_path, tensors, contents=contents), DecoderShape)


@pytest.mark.parametrize(
    ("stored", "storage"),
    [(gptq, Storage.GPTQ), (gptq_without_index, Storage.GPTQ), (awq, Storage.AWQ), (fp8, Storage.FP8),
     (int8, Storage.INT8), (nf4, Storage.INT4), (packed, Storage.PACKED)],
)  # fmt: skip
def test_quantised_weights_keep_their_true_sizes(tmp_path: Path, stored, storage: Storage) -> None:
    tensors, contents = dict(linear_tensors({**OUTSIDE, **NORMS}, "F16")), {}
    for name, (outputs, inputs) in PRODUCTS.items():
        for part, described in stored(outputs, inputs).items():
            tensors[f"{LAYER}.{name}.{part}"] = described
            if "quant_state" in part:
                contents[f"{LAYER}.{name}.{part}"] = json.dumps(
                    {"shape": [outputs, inputs]}
                ).encode()
            elif part == "weight_shape":
                contents[f"{LAYER}.{name}.{part}"] = struct.pack("<2q", outputs, inputs)
    shape = shape_of(tmp_path, tensors, contents=contents)
    assert isinstance(shape, DecoderShape)
    assert {p.storage for p in block_projections(shape.layers[0])} == {storage}
    assert [(p.outputs, p.inputs) for p in block_projections(shape.layers[0])] == list(
        PRODUCTS.values()
    )
    assert shape.dtype == "F16"
    assert layout_of_shape(shape).bytes_per_token == 2 * 128 * 2
    assert shape.unused == ()
    assert any("quantised" in str(note) for note in shape.notes)


def test_config_decides_what_shapes_cannot(tmp_path: Path) -> None:
    tensors = linear_tensors(
        {**OUTSIDE, **NORMS, **{f"{LAYER}.{n}.weight": s for n, s in PRODUCTS.items()}}
    )
    guessed = shape_of(tmp_path, tensors)
    stated = shape_of(
        tmp_path, tensors, {"num_attention_heads": 8, "head_dim": 64, "sliding_window": 77}
    )
    assert isinstance(guessed, DecoderShape)
    assert isinstance(stated, DecoderShape)
    first, second = guessed.layers[0].mixer, stated.layers[0].mixer
    assert isinstance(first, Attention)
    assert isinstance(second, Attention)
    assert (first.heads, first.head_dim, first.window) == (4, 128, None)
    assert (second.heads, second.head_dim, second.window) == (8, 64, 77)
    assert first.key_width == second.key_width == 128
    sureness = [
        {n.sureness for n in s.notes if "head size" in n.sentence} for s in (guessed, stated)
    ]
    assert sureness == [{Sureness.GUESSED}, {Sureness.STATED}]


@pytest.mark.parametrize(
    ("tensors", "kind"),
    [
        ({"base.layers.0.self_attn.q_proj.lora_A.weight": (8, 64)}, "LoRA adapter"),
        ({"embeddings.weight": (1000, 64)}, "embedding table"),
        ({"down_blocks.0.attentions.0.proj.weight": (8, 8), "mid.x.weight": (3, 3), "up.w.weight": (2, 2)}, "unrecognised"),
        ({"shared.weight": (9, 4), "encoder.block.0.layer.0.SelfAttention.q.weight": (4, 4),
          "decoder.block.0.layer.0.SelfAttention.q.weight": (4, 4)}, "encoder-decoder"),
        ({"model.embed_tokens.weight": (9, 4), "model.layers.0.strange.weight": (4, 4)}, "unrecognised"),
        ({"vision.layers.0.self_attn.q_proj.weight": (4, 4)}, "unrecognised"),
    ],
)  # fmt: skip
def test_what_is_no_transformer_is_only_loaded(tmp_path: Path, tensors: dict, kind: str) -> None:
    shape = shape_of(tmp_path, linear_tensors(tensors))
    assert isinstance(shape, OtherShape)
    assert shape.kind == kind
    assert shape.reason
    assert default_workload(read_checkpoint(tmp_path / "model.safetensors")) == "load"


PARTS = (
    "model", "layers", "0", "1", "h", "blocks", "encoder", "decoder", "self_attn", "attention", "q_proj", "k_proj", "v_proj",
    "o_proj", "qkv_proj", "query_key_value", "dense", "kv_a_proj_with_mqa", "kv_a_layernorm", "kv_b_proj", "mlp", "gate", "experts",
    "gate_up_proj", "down_proj", "up_proj", "gate_proj", "embed_tokens", "wte", "lm_head", "norm", "input_layernorm", "q_norm",
    "A_log", "conv1d", "sinks", "weight", "bias", "qweight", "scales", "qzeros", "SCB", "weight_packed", "weight_shape",
)  # fmt: skip
NUMBERS = st.one_of(
    st.none(), st.booleans(), st.integers(-2, 5), st.sampled_from(["x", [], {}, 2.5])
)


@settings(max_examples=300)
@given(
    tensors=st.dictionaries(
        st.lists(st.sampled_from(PARTS), min_size=1, max_size=6).map(".".join),
        st.tuples(st.sampled_from(["BF16", "I32", "U8", "I64", "F8_E4M3"]), st.lists(st.integers(0, 9), max_size=3).map(tuple)),
        min_size=1, max_size=12,
    ),
    config=st.one_of(st.none(), st.dictionaries(
        st.sampled_from([*sum(ALIASES.values(), ()), "text_config", "sliding_window", "layer_types", "model_type",
                         "architectures", "sliding_window_pattern", "max_window_layers"]), NUMBERS)),
)  # fmt: skip
def test_no_combination_of_names_shapes_and_config_makes_it_stumble(
    tmp_path_factory: pytest.TempPathFactory, tensors: dict, config: dict | None
) -> None:
    folder = tmp_path_factory.mktemp("any")
    shape = shape_of(folder, tensors, config)
    assert isinstance(shape, (DecoderShape, EncoderShape, OtherShape))
    assert default_workload(read_checkpoint(folder / "model.safetensors")) in {
        "chat",
        "encode",
        "load",
    }
    with contextlib.suppress(UnreadableInput):
        kv_layout(config, shape if isinstance(shape, DecoderShape) else None)


REAL = {
    name: {key: shape for key, shape in build(configured(name, 1)) if ".experts." not in key or ".experts.0" in key}
    for name, (build, _) in SHAPES.items()
}  # fmt: skip


@settings(max_examples=300)
@given(data=st.data(), name=st.sampled_from(sorted(REAL)))
def test_damaged_shapes_of_real_models_never_make_it_stumble(
    tmp_path_factory: pytest.TempPathFactory, data: st.DataObject, name: str
) -> None:
    tensors = dict(REAL[name])
    sizes = st.lists(st.sampled_from([0, 1, 3, 64, 96, 128, 4096]), max_size=3).map(tuple)
    for key in data.draw(st.lists(st.sampled_from(sorted(tensors)), max_size=5, unique=True)):
        damage = data.draw(st.one_of(st.none(), sizes))
        tensors.pop(key) if damage is None else tensors.update({key: damage})
    shape = shape_of(tmp_path_factory.mktemp("damaged"), linear_tensors(tensors or {"x": (1,)}))
    if isinstance(shape, DecoderShape):
        with contextlib.suppress(UnreadableInput):
            assert layout_of_shape(shape).bytes_at(7) >= 0


SMALL = {
    "vocab_size": 300, "hidden_size": 64, "intermediate_size": 128, "num_hidden_layers": 2, "num_attention_heads": 4,
    "num_key_value_heads": 2, "pad_token_id": 0, "bos_token_id": 1, "eos_token_id": 2,
}  # fmt: skip
FAMILIES = {
    "llama": {}, "mistral": {}, "qwen2": {}, "qwen3": {"head_dim": 32}, "gemma": {"head_dim": 32}, "gemma2": {"head_dim": 32},
    "phi3": {}, "phi": {}, "olmo2": {}, "gpt_neox": {}, "starcoder2": {}, "stablelm": {}, "cohere": {}, "granite": {},
    "mixtral": {}, "qwen3_moe": {"head_dim": 16, "moe_intermediate_size": 32, "num_experts": 4, "num_experts_per_tok": 2},
    "gpt2": {"n_embd": 64, "n_head": 4, "n_layer": 2, "pad_token_id": None}, "bloom": {"n_head": 4, "n_layer": 2},
    "falcon": {"multi_query": True}, "gpt_bigcode": {"n_embd": 64, "n_head": 4, "n_layer": 2},
    "opt": {"ffn_dim": 128, "word_embed_proj_dim": 64},
    "deepseek_v3": {"kv_lora_rank": 16, "q_lora_rank": 24, "qk_rope_head_dim": 8, "qk_nope_head_dim": 8, "v_head_dim": 16,
                    "n_routed_experts": 8, "num_experts_per_tok": 2, "n_group": 2, "topk_group": 1, "first_k_dense_replace": 1,
                    "moe_intermediate_size": 32},
}  # fmt: skip


@pytest.mark.parametrize("family", FAMILIES)
def test_every_family_of_transformers_is_read_as_it_caches(tmp_path: Path, family: str) -> None:
    """The oracle is transformers: its class's own parameters in, its own cache's bytes out."""
    config = transformers.CONFIG_MAPPING[family](**{**SMALL, **FAMILIES[family]})
    with torch.device("meta"):
        model = transformers.AutoModelForCausalLM.from_config(config, dtype=torch.bfloat16)
        cache = transformers.DynamicCache(config=config)
        model(torch.zeros((1, 3), dtype=torch.long), cache=cache, use_cache=True)
    held = sum(layer.keys.nbytes + layer.values.nbytes for layer in cache.layers)
    tensors = {name: ("BF16", tuple(p.shape)) for name, p in model.named_parameters()}
    shape = shape_of(tmp_path, tensors)
    assert isinstance(shape, DecoderShape)
    assert layout_of_shape(shape).bytes_at(3) == held
    assert len(shape.layers) == 2
    assert [name for name in shape.unused if "gate" not in name and "bias" not in name] == []


def test_latent_attention_and_experts_are_taken_apart(tmp_path: Path) -> None:
    write(tmp_path / "m.safetensors", "deepseek-v2-lite", "BF16")
    shape = infer_shape(read_checkpoint(tmp_path / "m.safetensors"))
    assert isinstance(shape, DecoderShape)
    mixer, experts = shape.layers[5].mixer, shape.layers[5].feed_forward
    assert isinstance(mixer, LatentAttention)
    assert (mixer.heads, mixer.latent, mixer.rope, mixer.nope, mixer.value_dim) == (
        16,
        512,
        64,
        128,
        128,
    )
    assert isinstance(experts, Experts)
    assert (experts.count, len(experts.routed)) == (64, 64)
    assert experts.shared is not None


@pytest.mark.parametrize("family", ["bert", "roberta", "distilbert"])
def test_encoders_are_encoders(tmp_path: Path, family: str) -> None:
    config = transformers.CONFIG_MAPPING[family](
        **SMALL, n_layers=2, n_heads=4, dim=64, hidden_dim=128
    )
    with torch.device("meta"):
        model = transformers.AutoModel.from_config(config)
    shape = shape_of(
        tmp_path, {name: ("F32", tuple(p.shape)) for name, p in model.named_parameters()}
    )
    assert isinstance(shape, EncoderShape)
    assert len(shape.layers) == 2
    assert default_workload(read_checkpoint(tmp_path / "model.safetensors")) == "encode"


def test_state_space_layers_are_named_and_not_run(tmp_path: Path) -> None:
    config = transformers.MambaConfig(vocab_size=300, hidden_size=64, num_hidden_layers=2)
    with torch.device("meta"):
        model = transformers.MambaForCausalLM(config)
    shape = shape_of(
        tmp_path, {name: ("F32", tuple(p.shape)) for name, p in model.named_parameters()}
    )
    assert isinstance(shape, DecoderShape)
    assert "state-space" in (shape.unrunnable or "")
    assert layout_of_shape(shape).bytes_per_token == 0
    assert layout_of_shape(shape).bytes_at(5) == layout_of_shape(shape).bytes_at(500) > 0
