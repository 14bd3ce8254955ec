"""KV bytes from config.json: exact against transformers' own caches, and closed where something is not known."""

import inspect
from collections.abc import Mapping
from typing import Any

import pytest
import torch
import transformers

from examples.make_model import SHAPES
from vramdoc.checkpoint.config import FAMILY_DEFAULTS, layer_windows
from vramdoc.checkpoint.kv_config import STANDARD, STATE_LAYOUTS, kv_layout, layout_of_config
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


def cached_bytes(config: Mapping[str, Any], tokens: int) -> int:
    """What transformers' DynamicCache holds after ``tokens`` tokens, in bfloat16: a real forward pass on torch's meta device.

    Experts and feed-forward layers have no part in a cache; they are cut so that a pass takes a moment.
    """
    small = {"intermediate_size": 64, "moe_intermediate_size": 64, "num_experts": 4, "num_local_experts": 4,
             "n_routed_experts": 8, "num_experts_per_tok": 2, "n_group": 1, "topk_group": 1, "n_shared_experts": 1,
             "vocab_size": 128, "pad_token_id": None, "bos_token_id": 1, "eos_token_id": 2, "ffn_dim": 64, "n_inner": 64,
             "first_k_dense_replace": 1}  # fmt: skip
    kind = config["model_type"]
    if "mamba" in kind:
        small.pop("intermediate_size")
    defaults = transformers.CONFIG_MAPPING[kind]().to_dict()
    values = {
        **config,
        **{key: value for key, value in small.items() if key in config or key in defaults},
    }
    made = transformers.CONFIG_MAPPING[values.pop("model_type")].from_dict(values)
    with torch.device("meta"):
        model = transformers.AutoModelForCausalLM.from_config(made, dtype=torch.bfloat16)
        cache = transformers.DynamicCache(config=made)
        keyword = next(
            name
            for name in ("cache", "past_key_values", "cache_params")
            if name in inspect.signature(model.forward).parameters
        )
        for new in (tokens - 1, 1):
            model(
                input_ids=torch.ones((1, new), dtype=torch.long), use_cache=True, **{keyword: cache}
            )
    states = ("keys", "values", "conv_states", "recurrent_states")
    return sum(_bytes(getattr(layer, state, None)) for layer in cache.layers for state in states)


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
    assert layout_of_config(config).bytes_at(tokens) == cached_bytes(config, tokens)


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


@pytest.mark.parametrize("family", sorted(FAMILY_DEFAULTS))
def test_family_defaults_are_those_of_transformers(family: str) -> None:
    config = transformers.CONFIG_MAPPING[family]()
    said = FAMILY_DEFAULTS[family]
    if "head_dim" in said:
        assert config.head_dim == said["head_dim"]
    if "sliding_window" in said:
        bare = {"model_type": family, **said}
        kinds = (
            getattr(config, "layer_types", None) or ["sliding_attention"] * config.num_hidden_layers
        )
        assert [w is not None for w in layer_windows(bare, len(kinds))] == [
            k == "sliding_attention" for k in kinds
        ]
        assert config.sliding_window == said["sliding_window"]


@pytest.mark.parametrize(
    ("config", "names"),
    [
        ({"model_type": "hyena_of_tomorrow", "num_hidden_layers": 2}, "hyena_of_tomorrow"),
        ({"num_hidden_layers": 2}, "'none'"),
        ({"model_type": "llama"}, "'layers'"),
        ({"model_type": "llama", "num_hidden_layers": 2}, "'heads'"),
        ({"model_type": "llama", "num_hidden_layers": 2, "num_attention_heads": 4}, "'hidden'"),
        ({"model_type": "t5", "num_layers": 2, "is_encoder_decoder": True}, "encoder-decoder"),
        ({"model_type": "deepseek_v3", "num_hidden_layers": 2}, "'kv_lora_rank'"),
        ({"model_type": "llama", "num_hidden_layers": 1, "num_attention_heads": 4, "hidden_size": 8,
          "layer_types": ["linear_attention"]}, "linear_attention"),
        ({"model_type": "llama", "num_hidden_layers": -3, "num_attention_heads": True}, "'layers'"),
    ],
)  # fmt: skip
def test_what_is_not_known_is_named_not_guessed(config: dict[str, Any], names: str) -> None:
    with pytest.raises(UnreadableInput, match=names):
        kv_layout(config, None)


BY_DEFAULTS = sorted(
    STANDARD.union(STATE_LAYOUTS) - {config["model_type"] for config in PUBLISHED.values()}
)
LAYER_KEYS = ("num_hidden_layers", "n_layer", "num_layers", "n_layers")


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("family", BY_DEFAULTS)
def test_family_is_exact_on_its_own_defaults(family: str) -> None:
    config = transformers.CONFIG_MAPPING[family]().to_dict()
    config |= {key: 4 for key in LAYER_KEYS if key in config}
    if config.get("layer_types"):
        config["layer_types"] = config["layer_types"][:4]
    if config.get("num_key_value_heads", 1) is None:
        config["num_key_value_heads"] = config["num_attention_heads"]
    assert layout_of_config(config).bytes_at(41) == cached_bytes(config, 41)
