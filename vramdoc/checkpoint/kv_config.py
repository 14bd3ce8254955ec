"""layout_of_config: exact KV bytes from ``config.json`` alone. Fails closed: what is not known is named, never guessed.

What a family keeps stands in ``kv_families``; this module reads no tensors, ``kv_layout`` joins both.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from vramdoc.checkpoint.config import (
    number,
    stated_element_bytes,
    text_config,
    with_family_defaults,
)
from vramdoc.checkpoint.kv import ELEMENT_BYTES, KvLayout, layout_of_shape
from vramdoc.checkpoint.kv_families import FAMILIES, NOTHING, Kinds, expanded, required
from vramdoc.checkpoint.shape import DecoderShape, Inference, Sureness
from vramdoc.errors import UnreadableInput

OLDER_NAMES: Mapping[str, str] = {
    "attention": "full_attention", "mamba": "linear_attention", "mamba2": "linear_attention",
    "deepseek_sparse_attention": "indexed_attention",
}  # fmt: skip
"""Names of kinds of layers that checkpoints still have (transformers 5.24, ``remap_legacy_layer_types``)."""


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
    family = str(config.get("model_type", "none"))
    if config.get("is_encoder_decoder"):
        raise UnreadableInput(
            f"{family} is an encoder-decoder: its cross-attention cache depends on the encoder's input"
        )
    if family not in FAMILIES:
        raise UnreadableInput(
            f"the attention of model type {family!r} is not known to vramdoc",
            "point at the weights: their shapes decide",
        )
    parts, kinds_of = FAMILIES[family]
    kinds = _kinds(config, kinds_of)
    made = parts(config, element_bytes, tensor_parallel)
    if expand_latent and any(layer.kind == "latent" for layer in made.values()):
        made = {kind: expanded(config) if layer.kind == "latent" else layer for kind, layer in made.items()}  # fmt: skip
    strange = sorted(set(kinds) - made.keys())
    if strange:
        raise UnreadableInput(f"the layer type {strange[0]!r} of {family} is not known to vramdoc")
    shared = min(number(config, "num_kv_shared_layers") or 0, len(kinds))
    layers = [made[kind] for kind in kinds[: len(kinds) - shared]] + [NOTHING] * shared
    return KvLayout(layers=tuple(layers), element_bytes=element_bytes)


def _kinds(config: Mapping[str, Any], kinds_of: Kinds) -> list[str]:
    """The kind of each layer: as config.json lists them, else as the family's class works them out."""
    stated = config.get("layer_types") or config.get("layers_block_type")
    if isinstance(stated, list):
        layers = number(config, "layers")
        if layers is not None and layers != len(stated):
            raise UnreadableInput(
                f"config.json lists the kinds of {len(stated)} layers and says that there are {layers}"
            )
        return [OLDER_NAMES.get(str(kind), str(kind)) for kind in stated]
    kinds = kinds_of(config, number(config, "layers") or 0)
    if not kinds:
        required(config, "layers")
    return kinds


def kv_layout(
    config: Mapping[str, Any] | None, shape: DecoderShape | None, element_bytes: int | None = None
) -> tuple[KvLayout, Inference]:
    """The layout by config.json where its family is known, else by tensor shapes; and which of the two it was.

    Raises:
        UnreadableInput: neither decides; the message says what is not known.
    """
    width = element_bytes or (
        ELEMENT_BYTES[shape.dtype] if shape else stated_element_bytes(config or {}) or 2
    )
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
