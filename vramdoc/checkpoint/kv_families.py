"""Which model types keep what, by family: layers of which kinds, and what one layer of each kind holds.

A family is listed here only when its layout was compared with the cache objects of transformers 5.24 built from the same
config (tests/checkpoint/test_kv_config.py). Kinds of layers have the names of transformers' ``layer_types``.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from vramdoc.checkpoint.config import number, sliding_layers
from vramdoc.checkpoint.kv import STATE_BYTES, LayerKv
from vramdoc.errors import UnreadableInput

Config = Mapping[str, Any]
Parts = Callable[[Config, int, int], Mapping[str, LayerKv]]
"""(config, bytes an element, devices that share the heads) -> what a layer of each kind holds."""
Kinds = Callable[[Config, int], list[str]]
"""(config, layers) -> the kind of each layer, where config.json does not list them."""

NOTHING = LayerKv(kind="shared")


def required(config: Config, name: str) -> int:
    """A size that must be there.

    Raises:
        UnreadableInput: it is not.
    """
    found = number(config, name)
    if found is None:
        raise UnreadableInput(
            f"config.json does not say {name!r}", "point at the weights: their shapes decide"
        )
    return found


def head_dim(config: Config) -> int:
    """Explicit wins: in many families heads times head size is not the hidden size."""
    return number(config, "head_dim") or required(config, "hidden") // required(config, "heads")


def kv_heads(config: Config) -> int:
    """How many key heads are cached.

    Falcon's new architecture groups its keys but caches every head (transformers 5.24, ``FalconAttention``).
    """
    kind = config.get("model_type")
    if kind == "falcon":
        shared = bool(config.get("multi_query", True)) and not config.get(
            "new_decoder_architecture"
        )
        return 1 if shared else required(config, "heads")
    if kind == "gpt_bigcode" and config.get("multi_query", True):
        return 1
    if kind in {"mpt", "dbrx"}:
        attention = config.get("attn_config")
        grouped = attention.get("kv_n_heads") if isinstance(attention, Mapping) else None
        if isinstance(grouped, int) and grouped > 0:
            return grouped
        return 1 if kind == "dbrx" else required(config, "heads")
    return number(config, "kv_heads") or required(config, "heads")


# What one layer holds


def full(config: Config, devices: int) -> LayerKv:
    """A head is never split: fewer key heads than devices are kept on each of them."""
    width = max(1, kv_heads(config) // devices) * head_dim(config)
    return LayerKv(kind="full", key=width, value=width)


def _windowed(layer: LayerKv, window: int | None) -> LayerKv:
    if window is None:
        return layer
    return LayerKv(kind="sliding", key=layer.key, value=layer.value, window=window)


def latent(config: Config) -> LayerKv:
    """The latent is not divided among devices: each of them needs all of it."""
    return LayerKv(
        kind="latent",
        key=required(config, "kv_lora_rank"),
        value=required(config, "qk_rope_head_dim"),
    )


def expanded(config: Config) -> LayerKv:
    """Full heads of a latent attention, as transformers before 5 and some servers cache them."""
    heads = required(config, "heads")
    key = required(config, "qk_nope_head_dim") + required(config, "qk_rope_head_dim")
    return LayerKv(kind="full", key=heads * key, value=heads * required(config, "v_head_dim"))


def state(config: Config, element_bytes: int, conv: int, recurrent: int, devices: int) -> LayerKv:
    """A convolution's window in the model's type, and a recurrent state in float32."""
    if devices > 1:
        raise UnreadableInput(
            f"how the state of {config.get('model_type')} is divided among devices is not known to vramdoc"
        )
    return LayerKv(kind="state", constant_bytes=conv * element_bytes + recurrent * STATE_BYTES)


def _beside(attention: LayerKv, mixer: LayerKv) -> LayerKv:
    return LayerKv(
        kind="hybrid", key=attention.key, value=attention.value, constant_bytes=mixer.constant_bytes
    )


# Families


def _standard(config: Config, _width: int, devices: int) -> Mapping[str, LayerKv]:
    layer = full(config, devices)
    return {
        "full_attention": layer,
        "sliding_attention": _windowed(layer, number(config, "sliding_window")),
        "chunked_attention": _windowed(layer, number(config, "attention_chunk_size")),
    }


def _latent(config: Config, _width: int, _devices: int) -> Mapping[str, LayerKv]:
    return {"full_attention": latent(config)}


def _indexed(config: Config, _width: int, _devices: int) -> Mapping[str, LayerKv]:
    """The indexer of sparse attention keeps one more key a token."""
    layer = latent(config)
    rope = layer.value + required(config, "index_head_dim")
    return {"indexed_attention": LayerKv(kind="latent", key=layer.key, value=rope)}


def _mamba(config: Config, width: int, devices: int) -> Mapping[str, LayerKv]:
    inner = number(config, "intermediate_size") or required(config, "expand") * required(
        config, "hidden"
    )
    conv = inner * required(config, "conv_kernel")
    recurrent = inner * required(config, "state_size")
    return {"linear_attention": state(config, width, conv, recurrent, devices)}


def _mamba2(config: Config, width: int, devices: int) -> Mapping[str, LayerKv]:
    inner = required(config, "expand") * required(config, "hidden")
    return {"linear_attention": _grouped_state(config, width, devices, inner, "state_size", "n_groups", "conv_kernel")}  # fmt: skip


def _grouped_state(
    config: Config, width: int, devices: int, inner: int, size: str, groups: str, kernel: str
) -> LayerKv:
    """Mamba 2: the convolution also runs over the keys and queries of every group."""
    per_channel = required(config, size)
    channels = inner + 2 * required(config, groups) * per_channel
    return state(config, width, channels * required(config, kernel), inner * per_channel, devices)


def _jamba(config: Config, width: int, devices: int) -> Mapping[str, LayerKv]:
    inner = required(config, "mamba_expand") * required(config, "hidden")
    conv, recurrent = (inner * required(config, size) for size in ("mamba_d_conv", "mamba_d_state"))
    return {
        "linear_attention": state(config, width, conv, recurrent, devices),
        "full_attention": full(config, devices),
    }


def _zamba(config: Config, width: int, devices: int) -> Mapping[str, LayerKv]:
    """Its shared attention reads twice the hidden size."""
    mixer = _jamba(config, width, devices)["linear_attention"]
    return {"linear_attention": mixer, "hybrid": _beside(_doubled(config, devices), mixer)}


def _zamba2(config: Config, width: int, devices: int) -> Mapping[str, LayerKv]:
    inner = required(config, "mamba_expand") * required(config, "hidden")
    mixer = _grouped_state(config, width, devices, inner, "mamba_d_state", "mamba_ngroups", "mamba_d_conv")  # fmt: skip
    return {"linear_attention": mixer, "hybrid": _beside(_doubled(config, devices), mixer)}


def _doubled(config: Config, devices: int) -> LayerKv:
    size = number(config, "attention_head_dim") or 2 * required(config, "hidden") // required(config, "heads")  # fmt: skip
    return full({**config, "head_dim": size}, devices)


def _bamba(config: Config, width: int, devices: int) -> Mapping[str, LayerKv]:
    inner = required(config, "mamba_expand") * required(config, "hidden")
    mixer = _grouped_state(config, width, devices, inner, "mamba_d_state", "mamba_n_groups", "mamba_d_conv")  # fmt: skip
    return {"linear_attention": mixer, "full_attention": full(config, devices)}


def _falcon_h1(config: Config, width: int, devices: int) -> Mapping[str, LayerKv]:
    inner = number(config, "mamba_d_ssm") or required(config, "mamba_expand") * required(
        config, "hidden"
    )
    mixer = _grouped_state(config, width, devices, inner, "mamba_d_state", "mamba_n_groups", "mamba_d_conv")  # fmt: skip
    return {"hybrid": _beside(full(config, devices), mixer)}


def _nemotron_h(config: Config, width: int, devices: int) -> Mapping[str, LayerKv]:
    inner = required(config, "mamba_num_heads") * required(config, "mamba_head_dim")
    mixer = _grouped_state(config, width, devices, inner, "ssm_state_size", "n_groups", "conv_kernel")  # fmt: skip
    return {
        "linear_attention": mixer, "full_attention": full(config, devices), "moe": NOTHING, "mlp": NOTHING,
    }  # fmt: skip


def _gated_delta(config: Config, width: int, devices: int) -> Mapping[str, LayerKv]:
    """A convolution over queries, keys and values, and a state of ``d_k x d_v`` for each value head."""
    key_heads, value_heads = required(config, "linear_num_key_heads"), required(config, "linear_num_value_heads")  # fmt: skip
    key, value = required(config, "linear_key_head_dim"), required(config, "linear_value_head_dim")
    channels = 2 * key_heads * key + value_heads * value
    conv = channels * required(config, "linear_conv_kernel_dim")
    return {
        "linear_attention": state(config, width, conv, value_heads * key * value, devices),
        "full_attention": full(config, devices),
    }


def _kimi(config: Config, width: int, devices: int) -> Mapping[str, LayerKv]:
    """Delta attention with one head count for all, beside latent attention; checkpoints keep its sizes in a table of their own."""
    own = config.get("linear_attn_config")
    sizes = {**config, **(own if isinstance(own, Mapping) else {})}
    heads = number(sizes, "num_heads") if own else required(config, "linear_num_heads")
    size = required({"head_dim": sizes.get("head_dim") if own else config.get("linear_head_dim")}, "head_dim")  # fmt: skip
    kernel = number(sizes, "short_conv_kernel_size") or required(config, "linear_conv_kernel_dim")
    inner = (heads or required(config, "linear_num_heads")) * size
    return {
        "linear_attention": state(config, width, 3 * inner * kernel, inner * size, devices),
        "full_attention": latent(config),
    }


def _lfm2(config: Config, width: int, devices: int) -> Mapping[str, LayerKv]:
    conv = required(config, "hidden") * required(config, "conv_L_cache")
    return {
        "conv": state(config, width, conv, 0, devices),
        "full_attention": full(config, devices),
    }


# Kinds of layers, where config.json does not list them


def _all(kind: str) -> Kinds:
    return lambda _config, layers: [kind] * layers


def _by_window(config: Config, layers: int) -> list[str]:
    slides = sliding_layers(config, layers)
    if slides is None:
        raise UnreadableInput(
            "config.json has a sliding window and does not say which layers use it ('layer_types')",
            "point at the weights, or put a config.json with layer_types beside them",
        )
    return ["sliding_attention" if slides_here else "full_attention" for slides_here in slides]


def _by_rope(config: Config, layers: int) -> list[str]:
    """Llama 4: layers with positions attend in chunks."""
    stated = config.get("no_rope_layers")
    interval = required(config, "no_rope_layer_interval")
    has_rope = (
        stated
        if isinstance(stated, list) and len(stated) == layers
        else [(index + 1) % interval for index in range(layers)]
    )
    return ["chunked_attention" if here else "full_attention" for here in has_rope]


def _by_period(config: Config, layers: int) -> list[str]:
    period, offset = required(config, "attn_layer_period"), config.get("attn_layer_offset")
    return [
        "full_attention" if index % period == offset else "linear_attention"
        for index in range(layers)
    ]


def _by_indices(name: str, other: str, *, unsaid: str) -> Kinds:
    def kinds(config: Config, layers: int) -> list[str]:
        chosen = config.get(name)
        if not isinstance(chosen, list):
            return [unsaid] * layers
        return ["full_attention" if index in chosen else other for index in range(layers)]

    return kinds


def _by_interval(config: Config, layers: int) -> list[str]:
    interval = number(config, "full_attention_interval") or 4
    return [
        "linear_attention" if (index + 1) % interval else "full_attention"
        for index in range(layers)
    ]


def _by_pattern(config: Config, _layers: int) -> list[str]:
    names = {"M": "linear_attention", "E": "moe", "*": "full_attention", "-": "mlp"}
    pattern = config.get("hybrid_override_pattern")
    if not isinstance(pattern, str) or not set(pattern) <= names.keys():
        raise UnreadableInput("config.json does not say which layers attend ('layers_block_type')")
    return [names[letter] for letter in pattern]


def _by_kimi_lists(config: Config, layers: int) -> list[str]:
    own = config.get("linear_attn_config")
    attending = own.get("full_attn_layers") if isinstance(own, Mapping) else None
    if not isinstance(attending, list):
        raise UnreadableInput("config.json does not say which layers attend ('layer_types')")
    # counted from one in the checkpoint
    return [
        "full_attention" if index + 1 in attending else "linear_attention"
        for index in range(layers)
    ]


def _unstated(_config: Config, _layers: int) -> list[str]:
    raise UnreadableInput("config.json does not say which layers attend ('layers_block_type')")


_STANDARD = (
    "afmoe", "apertus", "apertus1p5_text", "arcee", "aria_text", "beam", "biogpt", "bitnet", "bloom", "codegen", "cohere",
    "cohere2", "cohere2_moe", "cosmos3_edge_text", "ctrl", "cwm", "diffllama", "doge", "dots1", "ernie4_5", "ernie4_5_moe",
    "exaone", "exaone4", "exaone_moe", "falcon", "flex_olmo", "flint", "gemma", "gemma2", "gemma3_text", "gemma3n_text", "glm",
    "glm4", "glm4_moe", "glm_ocr_text", "gpt2", "gpt_bigcode", "gpt_neox", "gpt_neox_japanese", "gpt_oss", "gptj", "granite",
    "granite_docling_text", "granite_swa", "granitemoe", "granitemoe_swa", "granitemoeshared", "helium", "hunyuan_v1_dense",
    "hunyuan_v1_moe", "hy_v3", "hyperclovax", "internlm3", "iquestcoder", "jais2", "jetmoe", "kolibri1", "llama", "mellum",
    "minimax_m2", "minimax_m3_vl_text", "ministral", "ministral3", "mistral", "mixtral", "molmo2_text", "mpt",
    "muse_glimmer_text", "muse_spark_text", "nanochat", "nemotron", "olmo", "olmo2", "olmo3", "olmoe", "opt", "persimmon",
    "phi", "phi3", "phi4_multimodal", "phimoe", "qwen2", "qwen2_5_vl_text", "qwen2_moe", "qwen2_vl_text", "qwen3", "qwen3_moe",
    "qwen3_vl_moe_text", "qwen3_vl_text", "sarvam_moe", "seed_oss", "smollm3", "solar_open", "stablelm", "starcoder2",
)  # fmt: skip
"""Model types that cache ``kv_heads * head_dim`` keys and as many values a token in every attention layer."""

FAMILIES: Mapping[str, tuple[Parts, Kinds]] = {
    **dict.fromkeys(_STANDARD, (_standard, _by_window)),
    "llama4_text": (_standard, _by_rope),
    **dict.fromkeys(("deepseek_v2", "deepseek_v3", "glm4_moe_lite", "minicpm3", "mistral4", "sarvam_mla", "youtu", "axk1"), (_latent, _all("full_attention"))),
    **dict.fromkeys(("deepseek_v32", "glm_moe_dsa", "axk2"), (_indexed, _all("indexed_attention"))),
    **dict.fromkeys(("mamba", "falcon_mamba"), (_mamba, _all("linear_attention"))),
    "mamba2": (_mamba2, _all("linear_attention")),
    "jamba": (_jamba, _by_period),
    "zamba": (_zamba, _unstated),
    "zamba2": (_zamba2, _unstated),
    "bamba": (_bamba, _by_indices("attn_layer_indices", "linear_attention", unsaid="linear_attention")),
    "granitemoehybrid": (_bamba, _all("linear_attention")),
    "falcon_h1": (_falcon_h1, _all("hybrid")),
    "nemotron_h": (_nemotron_h, _by_pattern),
    **dict.fromkeys(("qwen3_next", "qwen3_5_text", "qwen3_5_moe_text", "olmo_hybrid"), (_gated_delta, _by_interval)),
    "kimi_linear": (_kimi, _by_kimi_lists),
    **dict.fromkeys(("lfm2", "lfm2_moe"), (_lfm2, _by_indices("full_attn_idxs", "conv", unsaid="full_attention"))),
}  # fmt: skip
"""Model type to what its layers hold, and how its class works out their kinds."""
