"""Reading ``config.json`` by the many names that model families give to one thing. It does not judge what it finds."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

ALIASES: Mapping[str, tuple[str, ...]] = {
    "layers": ("num_hidden_layers", "n_layer", "num_layers", "n_layers"),
    "heads": ("num_attention_heads", "n_head", "n_heads", "num_heads"),
    "kv_heads": ("num_key_value_heads", "num_kv_heads", "n_head_kv", "multi_query_group_num"),
    "hidden": ("hidden_size", "n_embd", "d_model", "dim"),
    "head_dim": ("head_dim", "kv_channels", "attention_head_dim"),
    "positions": ("max_position_embeddings", "n_positions", "max_seq_len", "n_ctx", "seq_length"),
    "experts": ("num_local_experts", "n_routed_experts", "num_experts"),
    "active_experts": ("num_experts_per_tok", "num_experts_per_token", "moe_topk", "moe_k"),
}
"""Our name to the keys that mean it, the commonest first (transformers 5.24's configuration classes)."""

_TEXT_PARTS = ("text_config", "llm_config", "language_config", "thinker_config")


def text_config(config: Mapping[str, Any]) -> Mapping[str, Any]:
    """The part of ``config`` that describes the language model: a multimodal config keeps it one level down."""
    for key in _TEXT_PARTS:
        part = config.get(key)
        if isinstance(part, Mapping) and part:
            return text_config(part)
    return config


def number(config: Mapping[str, Any], name: str) -> int | None:
    """The positive whole number that ``name`` (a key of ``ALIASES`` or of the config itself) stands for, or None."""
    for key in ALIASES.get(name, (name,)):
        value = config.get(key)
        if isinstance(value, int) and not isinstance(value, bool) and value > 0:
            return value
    return None


FAMILY_DEFAULTS: Mapping[str, Mapping[str, int]] = {
    "cohere2": {"sliding_window": 4096, "sliding_window_pattern": 4},
    "gemma": {"head_dim": 256},
    "gemma2": {"head_dim": 256, "sliding_window": 4096, "sliding_window_pattern": 2},
    "gemma3_text": {"head_dim": 256, "sliding_window": 4096, "sliding_window_pattern": 6},
    "gpt_oss": {"head_dim": 64, "sliding_window": 128, "sliding_window_pattern": 2},
    "mistral": {"sliding_window": 4096},
    "qwen3": {"head_dim": 128},
    "qwen3_next": {"head_dim": 256},
}
"""What transformers 5.24 takes where config.json is silent and the usual rule does not hold."""


def with_family_defaults(config: Mapping[str, Any]) -> Mapping[str, Any]:
    """``config`` with its family's own defaults below it; a key that is there, even as null, wins."""
    return {**FAMILY_DEFAULTS.get(str(config.get("model_type")), {}), **config}


def layer_windows(config: Mapping[str, Any], layers: int) -> tuple[int | None, ...]:
    """Each layer's sliding window in tokens, or None where it attends to everything.

    ``layer_types`` decides where it exists. Older configs say it by ``sliding_window_pattern`` (Gemma: every N-th
    layer is full), ``use_sliding_window`` with ``max_window_layers`` (Qwen2: off unless said, and the first layers are
    full) or not at all (Mistral: every layer slides).
    """
    window = number(config, "sliding_window")
    kinds = config.get("layer_types")
    if isinstance(kinds, list) and len(kinds) == layers:
        return tuple(window if kind == "sliding_attention" else None for kind in kinds)
    qwen = str(config.get("model_type")).startswith("qwen")
    if window is None or not config.get("use_sliding_window", not qwen):
        return (None,) * layers
    pattern = number(config, "sliding_window_pattern")
    if pattern is not None:
        return tuple(window if (index + 1) % pattern else None for index in range(layers))
    full_first = number(config, "max_window_layers") if qwen else None
    return tuple(window if index >= (full_first or 0) else None for index in range(layers))
