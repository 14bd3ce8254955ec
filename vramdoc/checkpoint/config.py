"""Reading ``config.json`` by the many names that model families give to one thing. It does not judge what it finds."""

from __future__ import annotations

import json
from collections.abc import Mapping
from functools import cache
from pathlib import Path
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

_FLAT: Mapping[str, str] = {"qwen2_vl": "qwen2_vl_text", "qwen2_5_vl": "qwen2_5_vl_text"}
"""Multimodal types whose published config.json keeps the language model's keys at the top, and what their text part is called."""
_TEXT_PARTS = ("text_config", "llm_config", "language_config", "thinker_config")


def text_config(config: Mapping[str, Any]) -> Mapping[str, Any]:
    """The part of ``config`` that describes the language model: a multimodal config keeps it one level down."""
    for key in _TEXT_PARTS:
        part = config.get(key)
        if isinstance(part, Mapping) and part:
            return text_config(part)
    family = str(config.get("model_type"))
    return {**config, "model_type": _FLAT[family]} if family in _FLAT else config


def number(config: Mapping[str, Any], name: str) -> int | None:
    """The positive whole number that ``name`` (a key of ``ALIASES`` or of the config itself) stands for, or None."""
    for key in ALIASES.get(name, (name,)):
        value = config.get(key)
        if isinstance(value, int) and not isinstance(value, bool) and value > 0:
            return value
    return None


DTYPE_BYTES: Mapping[str, int] = {"float64": 8, "float32": 4, "bfloat16": 2, "float16": 2}


def stated_element_bytes(config: Mapping[str, Any]) -> int | None:
    """Bytes of the type that ``config`` says the model computes in; None where it says none that is known."""
    for part in (config, text_config(config)):
        stated = part.get("dtype") or part.get("torch_dtype")
        if isinstance(stated, str) and stated.removeprefix("torch.") in DTYPE_BYTES:
            return DTYPE_BYTES[stated.removeprefix("torch.")]
    return None


WINDOW_PATTERNS: Mapping[str, int] = {
    "cohere2": 4, "gemma2": 2, "gemma3_text": 6, "gemma3n_text": 5, "gpt_oss": 2, "olmo3": 4,
}  # fmt: skip
"""Families whose class makes every N-th layer full where config.json says nothing (transformers 5.24)."""


@cache
def family_defaults() -> Mapping[str, Mapping[str, int | bool]]:
    """What transformers 5.24 takes where config.json is silent; ``layer_types`` is true where its class works them out.

    Written by tests/checkpoint/make_family_defaults.py.
    """
    text = Path(__file__).with_name("family_defaults.json").read_text(encoding="utf-8")
    found: dict[str, dict[str, int | bool]] = json.loads(text)
    return found


def with_family_defaults(config: Mapping[str, Any]) -> Mapping[str, Any]:
    """``config`` with its family's own defaults below it; a key that is there, by any of its names and even as null, wins."""
    own = family_defaults().get(str(config.get("model_type")), {})
    said = {name for names in ALIASES.values() if config.keys() & set(names) for name in names}
    return {
        **{
            name: value for name, value in own.items() if name not in said and name != "layer_types"
        },
        **config,
    }


def sliding_layers(config: Mapping[str, Any], layers: int) -> tuple[bool, ...] | None:
    """Which layers have a sliding window; None where only the family's class could tell.

    ``layer_types`` decides where it exists. Older configs say it by ``sliding_window_pattern`` (Gemma: every N-th
    layer is full), ``use_sliding_window`` with ``max_window_layers`` (Qwen2: off unless said, and the first layers are
    full) or not at all (Mistral: every layer slides).
    """
    kinds = config.get("layer_types")
    if isinstance(kinds, list) and len(kinds) == layers:
        return tuple(kind == "sliding_attention" for kind in kinds)
    family = str(config.get("model_type"))
    qwen = family.startswith("qwen")
    if number(config, "sliding_window") is None or not config.get("use_sliding_window", not qwen):
        return (False,) * layers
    if qwen:
        full_first = number(config, "max_window_layers") or 0
        return tuple(index >= full_first for index in range(layers))
    pattern = number(config, "sliding_window_pattern") or WINDOW_PATTERNS.get(family)
    if pattern is not None:
        return tuple(bool((index + 1) % pattern) for index in range(layers))
    return None if family_defaults().get(family, {}).get("layer_types") else (True,) * layers


def layer_windows(config: Mapping[str, Any], layers: int) -> tuple[int | None, ...]:
    """Each layer's sliding window in tokens, or None where it attends to everything or nobody says which layers slide."""
    window = number(config, "sliding_window")
    slides = sliding_layers(config, layers) or (False,) * layers
    return tuple(window if here else None for here in slides)
