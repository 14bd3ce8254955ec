"""KV bytes from config.json: exact against transformers' own caches, and closed where something is not known."""

import dataclasses
import inspect
import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest
import torch
import transformers

from examples.make_model import SHAPES
from tests.checkpoint.make_family_defaults import table
from vramdoc.checkpoint import config as config_module
from vramdoc.checkpoint.config import WINDOW_PATTERNS, family_defaults, layer_windows
from vramdoc.checkpoint.kv_config import kv_layout, layout_of_config
from vramdoc.checkpoint.kv_families import FAMILIES
from vramdoc.errors import UnreadableInput

PUBLISHED: dict[str, dict[str, Any]] = {
    **{name: config for name, (_, config) in SHAPES.items()},
    "Llama-2-7b": {"model_type": "llama", "num_hidden_layers": 32, "hidden_size": 4096, "intermediate_size": 11008,
                   "num_attention_heads": 32, "num_key_value_heads": 32, "vocab_size": 32000},
    "Llama-3.2-1B": {"model_type": "llama", "num_hidden_layers": 16, "hidden_size": 2048, "intermediate_size": 8192,
                     "num_attention_heads": 32, "num_key_value_heads": 8, "head_dim": 64, "vocab_size": 128256},
    "Qwen3-8B": {"model_type": "qwen3", "num_hidden_layers": 36, "hidden_size": 4096, "intermediate_size": 12288,
                 "num_attention_heads": 32, "num_key_value_heads": 8, "head_dim": 128, "vocab_size": 151936,
                 "sliding_window": None, "use_sliding_window": False, "max_window_layers": 36},
    "Qwen3-30B-A3B": {"model_type": "qwen3_moe", "num_hidden_layers": 48, "hidden_size": 2048, "intermediate_size": 6144,
                      "moe_intermediate_size": 768, "num_attention_heads": 32, "num_key_value_heads": 4, "head_dim": 128,
                      "num_experts": 128, "num_experts_per_tok": 8, "vocab_size": 151936},
    "gemma-2b": {"model_type": "gemma", "num_hidden_layers": 18, "hidden_size": 2048, "intermediate_size": 16384,
                 "num_attention_heads": 8, "num_key_value_heads": 1, "head_dim": 256, "vocab_size": 256000},
    "gemma-3-1b": {"model_type": "gemma3_text", "num_hidden_layers": 26, "hidden_size": 1152, "intermediate_size": 6912,
                   "num_attention_heads": 4, "num_key_value_heads": 1, "head_dim": 256, "sliding_window": 512,
                   "sliding_window_pattern": 6, "vocab_size": 262144},
    "gpt-oss-20b": {"model_type": "gpt_oss", "num_hidden_layers": 24, "hidden_size": 2880, "intermediate_size": 2880,
                    "num_attention_heads": 64, "num_key_value_heads": 8, "head_dim": 64, "sliding_window": 128,
                    "num_local_experts": 32, "num_experts_per_tok": 4, "vocab_size": 201088,
                    "layer_types": ["sliding_attention", "full_attention"] * 12},
    "falcon-40b": {"model_type": "falcon", "num_hidden_layers": 60, "hidden_size": 8192, "num_attention_heads": 128,
                   "num_kv_heads": 8, "new_decoder_architecture": True, "vocab_size": 65024},
    "starcoder": {"model_type": "gpt_bigcode", "n_layer": 40, "n_embd": 6144, "n_head": 48, "multi_query": True,
                  "n_inner": 24576, "n_positions": 8192, "vocab_size": 49152},
    "bloom-7b1": {"model_type": "bloom", "n_layer": 30, "hidden_size": 4096, "n_head": 32, "vocab_size": 250880},
    "opt-6.7b": {"model_type": "opt", "num_hidden_layers": 32, "hidden_size": 4096, "ffn_dim": 16384,
                 "num_attention_heads": 32, "word_embed_proj_dim": 4096, "vocab_size": 50272},
    "mpt-7b": {"model_type": "mpt", "n_layers": 32, "d_model": 4096, "n_heads": 32, "vocab_size": 50432},
    "command-r7b": {"model_type": "cohere2", "num_hidden_layers": 32, "hidden_size": 4096, "intermediate_size": 14336,
                    "num_attention_heads": 32, "num_key_value_heads": 8, "sliding_window": 4096,
                    "sliding_window_pattern": 4, "vocab_size": 256000},
    "DeepSeek-V3": {"model_type": "deepseek_v3", "num_hidden_layers": 61, "hidden_size": 7168, "intermediate_size": 18432,
                    "moe_intermediate_size": 2048, "num_attention_heads": 128, "num_key_value_heads": 128,
                    "kv_lora_rank": 512, "q_lora_rank": 1536, "qk_rope_head_dim": 64, "qk_nope_head_dim": 128,
                    "v_head_dim": 128, "n_routed_experts": 256, "num_experts_per_tok": 8, "vocab_size": 129280},
    "mamba-2.8b": {"model_type": "mamba", "num_hidden_layers": 64, "hidden_size": 2560, "intermediate_size": 5120,
                   "state_size": 16, "conv_kernel": 4, "expand": 2, "vocab_size": 50280},
    "mamba2-2.7b": {"model_type": "mamba2", "num_hidden_layers": 64, "hidden_size": 2560, "num_heads": 80, "head_dim": 64,
                    "state_size": 128, "n_groups": 1, "conv_kernel": 4, "expand": 2, "vocab_size": 50288},
    "Qwen3-Next-80B-A3B": {"model_type": "qwen3_next", "num_hidden_layers": 48, "hidden_size": 2048, "head_dim": 256,
                           "num_attention_heads": 16, "num_key_value_heads": 2, "linear_num_key_heads": 16,
                           "linear_num_value_heads": 32, "linear_key_head_dim": 128, "linear_value_head_dim": 128,
                           "linear_conv_kernel_dim": 4, "full_attention_interval": 4, "num_experts": 512,
                           "num_experts_per_tok": 10, "moe_intermediate_size": 512, "vocab_size": 151936},
}  # fmt: skip
"""Published configurations: what decides the cache, and the sizes that a forward pass needs."""


SMALL = {"intermediate_size": 64, "moe_intermediate_size": 64, "num_experts": 4, "num_local_experts": 4,
         "n_routed_experts": 8, "num_experts_per_tok": 2, "n_group": 1, "topk_group": 1, "n_shared_experts": 1,
         "vocab_size": 128, "vocab_size_per_layer_input": 128, "pad_token_id": None, "bos_token_id": 1, "eos_token_id": 2,
         "ffn_dim": 64, "n_inner": 64, "first_k_dense_replace": 1}  # fmt: skip
"""Experts, feed-forward layers and words have no part in a cache; they are cut so that a pass takes a moment."""


def made(family: str, config: Mapping[str, Any]) -> transformers.PreTrainedConfig:
    """The class's config, with what has no part in a cache made small."""
    own = {item.name for item in dataclasses.fields(transformers.CONFIG_MAPPING[family])}
    small = {key: value for key, value in SMALL.items() if key in own or key in config}
    if "mamba" in family:
        small.pop("intermediate_size", None)
    kept = {key: value for key, value in config.items() if key != "model_type"}
    return transformers.CONFIG_MAPPING[family].from_dict({**kept, **small})


def cached_bytes(config: transformers.PreTrainedConfig, tokens: int) -> int:
    """What transformers' DynamicCache holds after ``tokens`` tokens, in bfloat16: a real forward pass.

    On torch's meta device; on the CPU where the class reads a value back.
    """
    try:
        cache = _filled(config, tokens, "meta")
    except (RuntimeError, NotImplementedError, TypeError):
        cache = _filled(config, tokens, "cpu")
    states = (vars(layer).items() for layer in cache.layers)
    # a layer's window is kept as a tensor too
    return sum(_bytes(value) for layer in states for name, value in layer if "window" not in name)


def _filled(config: transformers.PreTrainedConfig, tokens: int, device: str) -> Any:
    with torch.device(device), torch.inference_mode():
        try:
            model = transformers.AutoModelForCausalLM.from_config(config, dtype=torch.bfloat16)
        except ValueError:  # the text part of a multimodal model
            model = transformers.AutoModel.from_config(config, dtype=torch.bfloat16)
        cache = transformers.DynamicCache(config=config)
        keyword = next(
            name
            for name in ("cache", "past_key_values", "cache_params")
            if name in inspect.signature(model.forward).parameters
        )
        for new in (tokens - 1, 1):
            model(
                input_ids=torch.ones((1, new), dtype=torch.long), use_cache=True, **{keyword: cache}
            )
    return cache


def _bytes(value: object) -> int:
    if isinstance(value, torch.Tensor):
        return value.nbytes
    if isinstance(value, Mapping):
        return sum(map(_bytes, value.values()))
    return sum(map(_bytes, value)) if isinstance(value, (list, tuple)) else 0


@pytest.mark.filterwarnings("ignore")  # transformers' own, about kernels that are not installed
@pytest.mark.parametrize("name", PUBLISHED)
def test_published_config_is_exact_to_the_byte(name: str) -> None:
    config = PUBLISHED[name]
    tokens = (
        41 if "mamba" in config["model_type"] else 700
    )  # Mamba's reference code loops over them
    built = made(config["model_type"], config)
    assert layout_of_config(config).bytes_at(tokens) == cached_bytes(built, tokens)


@pytest.mark.parametrize(
    ("name", "kibibytes"),
    [
        ("llama-3-8b", 128),
        ("llama-3-70b", 320),
        ("qwen2.5-7b", 56),
        ("DeepSeek-V3", 68.625),
        ("Llama-2-7b", 512),
    ],
)
def test_bytes_a_token_are_the_known_ones(name: str, kibibytes: float) -> None:
    assert layout_of_config(PUBLISHED[name]).bytes_per_token == kibibytes * 1024


def test_expanded_latent_is_seventy_times_the_latent() -> None:
    """What DeepSeek-V3 costs where full heads are cached: 4.77 MiB a token."""
    expanded = layout_of_config(PUBLISHED["DeepSeek-V3"], expand_latent=True).bytes_per_token
    assert expanded == 61 * 128 * (128 + 64 + 128) * 2
    assert expanded / layout_of_config(PUBLISHED["DeepSeek-V3"]).bytes_per_token == pytest.approx(
        71.1, abs=0.1
    )


def test_devices_share_key_heads_but_never_split_one() -> None:
    def on(devices: int, name: str) -> int:
        return layout_of_config(PUBLISHED[name], tensor_parallel=devices).bytes_per_token

    assert [on(n, "llama-3-70b") for n in (1, 2, 8, 16)] == [
        320 << 10,
        160 << 10,
        40 << 10,
        40 << 10,
    ]
    assert on(8, "DeepSeek-V3") == on(1, "DeepSeek-V3")


def test_a_window_bounds_what_is_kept() -> None:
    layout = layout_of_config({**PUBLISHED["mistral-7b"], "sliding_window": 16})
    assert layout.bytes_at(1000) == layout.bytes_at(15) == 15 * layout.bytes_per_token
    assert layout.unbounded_bytes_per_token == 0


def test_family_defaults_are_those_of_transformers() -> None:
    kept = Path(config_module.__file__).with_name("family_defaults.json")
    assert kept.read_text() == table(), "run: python tests/checkpoint/make_family_defaults.py"


@pytest.mark.parametrize("family", sorted(WINDOW_PATTERNS))
def test_window_patterns_are_those_of_transformers(family: str) -> None:
    config = transformers.CONFIG_MAPPING[family]()
    bare = {**family_defaults()[family], "model_type": family, "layer_types": None}
    assert [window is not None for window in layer_windows(bare, len(config.layer_types))] == [
        kind == "sliding_attention" for kind in config.layer_types
    ]


@pytest.mark.parametrize(
    ("config", "names"),
    [
        ({"model_type": "hyena_of_tomorrow", "num_hidden_layers": 2}, "hyena_of_tomorrow"),
        ({"num_hidden_layers": 2}, "'none'"),
        ({"model_type": "llama"}, "'layers'"),
        ({"model_type": "llama", "num_hidden_layers": 2}, "'heads'"),
        ({"model_type": "llama", "num_hidden_layers": 2, "num_attention_heads": 4}, "'hidden'"),
        ({"model_type": "t5", "num_layers": 2, "is_encoder_decoder": True}, "encoder-decoder"),
        ({"model_type": "olmo_hybrid", "num_hidden_layers": 2}, "'linear_num_key_heads'"),
        ({"model_type": "nemotron_h", "hybrid_override_pattern": "M?"}, "which layers attend"),
        ({"model_type": "llama", "num_hidden_layers": 1, "num_attention_heads": 4, "hidden_size": 8,
          "layer_types": ["linear_attention"]}, "linear_attention"),
        ({"model_type": "llama", "num_hidden_layers": -3, "num_attention_heads": True}, "'layers'"),
    ],
)  # fmt: skip
def test_what_is_not_known_is_named_not_guessed(config: dict[str, Any], names: str) -> None:
    with pytest.raises(UnreadableInput, match=names):
        kv_layout(config, None)


SIZES = {"num_hidden_layers": 4, "hidden_size": 512, "num_attention_heads": 4, "num_key_value_heads": 2, "head_dim": 128,
         "sliding_window": 16}  # fmt: skip
OF_FAMILY: dict[str, dict[str, Any]] = {
    "bamba": {"attn_layer_indices": [1, 3], "mamba_n_heads": 8, "mamba_d_head": 128},
    "falcon_h1": {"mamba_n_heads": 8, "mamba_d_head": 16, "mamba_d_ssm": 128, "mamba_d_state": 32},
    "gemma3n_text": {"num_hidden_layers": 10, "num_kv_shared_layers": 3},
    "glm_ocr_text": {"head_dim": 64},
    "granitemoehybrid": {"mamba_n_heads": 8, "mamba_d_head": 128, "layer_types": ["mamba", "attention"] * 2},
    "jamba": {"num_hidden_layers": 8, "mamba_expand": 1},
    "kimi_linear": {"num_key_value_heads": 4, "linear_head_dim": 32, "linear_num_heads": 4,
                    "layer_types": ["linear_attention", "full_attention"] * 2},
    "lfm2": {"full_attn_idxs": [1, 3]},
    "lfm2_moe": {"layer_types": ["conv", "full_attention"] * 2},
    "llama4_text": {"attention_chunk_size": 32},
    "mamba2": {"num_heads": 16, "head_dim": 64},
    "nemotron_h": {"hybrid_override_pattern": "M-M*-ME*", "mamba_num_heads": 8, "mamba_head_dim": 32, "n_groups": 2},
    "olmo_hybrid": {"linear_num_key_heads": 4, "linear_num_value_heads": 4, "linear_key_head_dim": 24,
                    "linear_value_head_dim": 48},
    "zamba": {"layers_block_type": ["mamba", "hybrid"] * 2, "mamba_expand": 1},
    "zamba2": {"layers_block_type": ["mamba", "hybrid"] * 2, "mamba_expand": 1},
}  # fmt: skip
"""What a family needs besides, so that layers of every kind are there."""
READ = sorted(FAMILIES.keys() - {config["model_type"] for config in PUBLISHED.values()})


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("family", READ)
def test_family_is_exact_as_its_class_saves_it(family: str) -> None:
    """From the class, as ``save_pretrained`` writes it, to the byte that its cache holds; windows are full at 41 tokens."""
    own = {item.name for item in dataclasses.fields(transformers.CONFIG_MAPPING[family])}
    sizes = SIZES
    if "kv_lora_rank" in own:  # every head has its own keys there
        sizes = {**sizes, "num_key_value_heads": 4}
    config = made(
        family,
        {**{key: size for key, size in sizes.items() if key in own}, **OF_FAMILY.get(family, {})},
    )
    saved = json.loads(config.to_json_string(use_diff=True))
    assert layout_of_config(saved).bytes_at(41) == cached_bytes(config, 41)


def test_a_window_without_its_layers_is_refused() -> None:
    """Only OLMo 3's class knows its pattern; a later family's config without layer_types says nothing."""
    known = {
        "num_hidden_layers": 4,
        "num_attention_heads": 4,
        "hidden_size": 64,
        "sliding_window": 8,
    }
    layers = layout_of_config({**known, "model_type": "olmo3"}).layers
    assert [layer.kind for layer in layers] == ["sliding", "sliding", "sliding", "full"]
    with pytest.raises(UnreadableInput, match="does not say which layers"):
        layout_of_config({**known, "model_type": "dots1"})
    with pytest.raises(
        UnreadableInput, match="lists the kinds of 1 layers and says that there are 4"
    ):
        layout_of_config({**known, "model_type": "olmo3", "layer_types": ["full_attention"]})


def test_keys_that_config_json_leaves_out_are_those_of_the_class() -> None:
    """A Mistral without num_key_value_heads has 8, not as many as heads; null says that it has as many."""
    silent = {
        "model_type": "mistral",
        "num_hidden_layers": 1,
        "num_attention_heads": 32,
        "hidden_size": 4096,
    }
    assert layout_of_config(silent).bytes_per_token == 2 * 8 * 128 * 2
    explicit = {**silent, "num_key_value_heads": None}
    assert layout_of_config(explicit).bytes_per_token == 2 * 32 * 128 * 2


def test_a_state_is_not_divided_among_devices_by_guess() -> None:
    with pytest.raises(UnreadableInput, match="divided among devices"):
        layout_of_config(PUBLISHED["mamba-2.8b"], tensor_parallel=2)


def test_elements_are_as_wide_as_config_json_says() -> None:
    config = PUBLISHED["Llama-2-7b"]
    layout, _ = kv_layout({**config, "torch_dtype": "float32"}, None)
    assert layout.bytes_per_token == 2 * layout_of_config(config).bytes_per_token
