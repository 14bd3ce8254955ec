"""layout_of_config: exact KV bytes from ``config.json`` alone. Fails closed: what is not known is named, never guessed.

A family is listed here only when its layout was compared with the cache objects of transformers 5.24 built from the
same config (tests/checkpoint/test_kv_config.py). It reads no tensors; ``kv.kv_layout`` joins both.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from vramdoc.checkpoint.config import layer_windows, number, text_config, with_family_defaults
from vramdoc.checkpoint.kv import ELEMENT_BYTES, STATE_BYTES, KvLayout, LayerKv, layout_of_shape
from vramdoc.checkpoint.shape import DecoderShape, Inference, Sureness
from vramdoc.errors import UnreadableInput

STANDARD = frozenset({
    "arcee", "apertus", "bloom", "codegen", "cohere", "cohere2", "exaone4", "falcon", "gemma", "gemma2", "gemma3_text",
    "glm", "glm4", "glm4_moe", "gpt2", "gpt_bigcode", "gpt_neox", "gpt_oss", "gptj",
    "granite", "granitemoe", "helium", "llama", "mistral", "mixtral", "mpt", "nemotron", "olmo",
    "olmo2", "olmo3", "olmoe", "opt", "persimmon", "phi", "phi3", "phimoe", "qwen2", "qwen2_moe", "qwen3", "qwen3_moe",
    "seed_oss", "smollm3", "stablelm", "starcoder2",
})  # fmt: skip
"""Model types that cache ``kv_heads * head_dim`` keys and as many values a token in every attention layer."""
LATENT = frozenset({"deepseek_v2", "deepseek_v3"})
"""Model types with multi-head latent attention."""


def layout_of_config(
    config: Mapping[str, Any],
    element_bytes: int = 2,
    *,
    tensor_parallel: int = 1,
    expand_latent: bool = False,
) -> KvLayout:
    """The layout that transformers' caches have for a model of this config, on one of ``tensor_parallel`` devices.

    ``expand_latent`` is for engines that cache full heads of a latent attention (transformers before 5, some servers).

    Raises:
        UnreadableInput: a model type, a kind of layer or a size that is not known, by name.
    """
    config = with_family_defaults(text_config(config))
    kind = str(config.get("model_type", "none"))
    layers = _required(config, "layers")
    if config.get("is_encoder_decoder"):
        raise UnreadableInput(
            f"{kind} is an encoder-decoder: its cross-attention cache depends on the encoder's input"
        )
    if kind in LATENT:
        layer = _expanded(config) if expand_latent else _latent(config)
        made = (layer,) * layers
    elif kind in STANDARD:
        made = _standard(config, kind, layers, tensor_parallel)
    elif kind in STATE_LAYOUTS:
        made = STATE_LAYOUTS[kind](config, layers, element_bytes)
    else:
        raise UnreadableInput(
            f"the attention of model type {kind!r} is not known to vramdoc",
            "point at the weights: their shapes decide",
        )
    return KvLayout(layers=made, element_bytes=element_bytes)


def _required(config: Mapping[str, Any], name: str) -> int:
    found = number(config, name)
    if found is None:
        raise UnreadableInput(
            f"config.json does not say {name!r}", "point at the weights: their shapes decide"
        )
    return found


def _head_dim(config: Mapping[str, Any]) -> int:
    explicit = number(config, "head_dim")
    return explicit or _required(config, "hidden") // _required(config, "heads")


def kv_heads(config: Mapping[str, Any], kind: str) -> int:
    """How many key heads are cached.

    Falcon's new architecture groups its keys but caches every head (transformers 5.24, ``FalconAttention``).
    """
    if kind == "falcon":
        shared = bool(config.get("multi_query", True)) and not config.get(
            "new_decoder_architecture"
        )
        return 1 if shared else _required(config, "heads")
    if kind == "gpt_bigcode" and config.get("multi_query", True):
        return 1
    if kind == "mpt":
        attention = config.get("attn_config")
        grouped = attention.get("kv_n_heads") if isinstance(attention, Mapping) else None
        return grouped if isinstance(grouped, int) and grouped > 0 else _required(config, "heads")
    return number(config, "kv_heads") or _required(config, "heads")


def _standard(
    config: Mapping[str, Any], kind: str, layers: int, tensor_parallel: int
) -> tuple[LayerKv, ...]:
    kinds = config.get("layer_types")
    if isinstance(kinds, list):
        strange = sorted({str(item) for item in kinds} - {"full_attention", "sliding_attention"})
        if strange:
            raise UnreadableInput(
                f"the layer type {strange[0]!r} of {kind} is not known to vramdoc"
            )
    # a head is never split: fewer key heads than devices are kept on each of them
    width = max(1, kv_heads(config, kind) // tensor_parallel) * _head_dim(config)
    shared = number(config, "num_kv_shared_layers") or 0
    return tuple(
        LayerKv(kind="shared")
        if index >= layers - shared
        else LayerKv(kind="sliding" if window else "full", key=width, value=width, window=window)
        for index, window in enumerate(layer_windows(config, layers))
    )


def _latent(config: Mapping[str, Any]) -> LayerKv:
    """The latent is not divided among devices: each of them needs all of it."""
    return LayerKv(
        kind="latent",
        key=_required(config, "kv_lora_rank"),
        value=_required(config, "qk_rope_head_dim"),
    )


def _expanded(config: Mapping[str, Any]) -> LayerKv:
    heads = _required(config, "heads")
    key = _required(config, "qk_nope_head_dim") + _required(config, "qk_rope_head_dim")
    return LayerKv(kind="full", key=heads * key, value=heads * _required(config, "v_head_dim"))


def _mamba(config: Mapping[str, Any], layers: int, element_bytes: int) -> tuple[LayerKv, ...]:
    inner = number(config, "intermediate_size") or (number(config, "expand") or 2) * _required(
        config, "hidden"
    )
    state = number(config, "state_size") or 16
    kernel = number(config, "conv_kernel") or 4
    return (
        LayerKv(
            kind="state", constant_bytes=inner * (kernel * element_bytes + state * STATE_BYTES)
        ),
    ) * layers


def _mamba2(config: Mapping[str, Any], layers: int, element_bytes: int) -> tuple[LayerKv, ...]:
    inner = (number(config, "expand") or 2) * _required(config, "hidden")
    state, groups = number(config, "state_size") or 128, number(config, "n_groups") or 8
    channels = inner + 2 * groups * state
    window = channels * (number(config, "conv_kernel") or 4) * element_bytes
    return (LayerKv(kind="state", constant_bytes=window + inner * state * STATE_BYTES),) * layers


def _gated_delta(config: Mapping[str, Any], layers: int, element_bytes: int) -> tuple[LayerKv, ...]:
    """Qwen3-Next: three of four layers keep a convolution window and a float32 state of ``d_k x d_v`` a value head."""
    kinds = config.get("layer_types") or [
        "linear_attention"
        if (index + 1) % (number(config, "full_attention_interval") or 4)
        else "full_attention"
        for index in range(layers)
    ]
    key_heads, value_heads = (
        _required(config, "linear_num_key_heads"),
        _required(config, "linear_num_value_heads"),
    )
    key, value = (
        _required(config, "linear_key_head_dim"),
        _required(config, "linear_value_head_dim"),
    )
    channels = 2 * key_heads * key + value_heads * value
    window = channels * _required(config, "linear_conv_kernel_dim") * element_bytes
    state = LayerKv(kind="state", constant_bytes=window + value_heads * key * value * STATE_BYTES)
    width = kv_heads(config, "qwen3_next") * _head_dim(config)
    full = LayerKv(kind="full", key=width, value=width)
    strange = sorted({str(item) for item in kinds} - {"linear_attention", "full_attention"})
    if strange:
        raise UnreadableInput(
            f"the layer type {strange[0]!r} of qwen3_next is not known to vramdoc"
        )
    return tuple(state if item == "linear_attention" else full for item in kinds)


STATE_LAYOUTS: Mapping[str, Callable[[Mapping[str, Any], int, int], tuple[LayerKv, ...]]] = {
    "mamba": _mamba, "falcon_mamba": _mamba, "mamba2": _mamba2, "qwen3_next": _gated_delta,
}  # fmt: skip
"""Model types with layers whose state does not grow with the context."""


def kv_layout(
    config: Mapping[str, Any] | None, shape: DecoderShape | None, element_bytes: int | None = None
) -> tuple[KvLayout, Inference]:
    """The layout by config.json where its family is known, else by tensor shapes; and which of the two it was.

    Raises:
        UnreadableInput: neither decides; the message says what is not known.
    """
    width = element_bytes or (ELEMENT_BYTES[shape.dtype] if shape else 2)
    if config:
        try:
            layout = layout_of_config(config, width)
        except UnreadableInput:
            if shape is None:
                raise
        else:
            return layout, Inference(
                f"{layout.bytes_per_token:,} bytes of KV cache a token", Sureness.STATED
            )
    if shape is None:
        raise UnreadableInput("no config.json and no decoder layers: the KV cache cannot be known")
    layout = layout_of_shape(shape, width)
    return layout, Inference(
        f"{layout.bytes_per_token:,} bytes of KV cache a token", Sureness.EXACT
    )
