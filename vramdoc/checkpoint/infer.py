"""infer_shape: from tensor names, shapes and config.json to what kind of model this is and how it is built.

Each inference is kept with how surely it is known. Where names and shapes do not decide, the answer is OtherShape
with the reason, and only loading is measured. The rules and their ambiguities are those of transformers 5.24's modules
and of the quantisation formats (``modules``). It does not know bytes (``kv``).
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from vramdoc.checkpoint.config import layer_windows, number, text_config, with_family_defaults
from vramdoc.checkpoint.layers import Stated, read_block
from vramdoc.checkpoint.modules import norm, projection
from vramdoc.checkpoint.notes import inference_notes
from vramdoc.checkpoint.shape import (
    Attention,
    Block,
    DecoderShape,
    EncoderShape,
    Experts,
    LatentAttention,
    Norm,
    OtherShape,
    Projection,
    Shape,
    StateMixer,
    block_projections,
)
from vramdoc.checkpoint.tensors import Checkpoint, StoredTensor

_LAYER = re.compile(
    r"(?P<stack>(?:.*?\.)?(?:layers|layer|h|blocks|block))\.(?P<index>\d+)\.(?P<rest>.+)\Z"
)
EMBEDDINGS = ("embed_tokens", "wte", "word_embeddings", "embed_in", "tok_embeddings", "embeddings")
POSITIONS = ("wpe", "embed_positions", "position_embeddings")
TOKEN_TYPES = ("token_type_embeddings",)
HEADS = ("lm_head", "embed_out", "output", "score")
FINAL_NORMS = ("norm", "ln_f", "final_layer_norm", "final_layernorm", "norm_f")
EMBEDDING_NORMS = ("word_embeddings_layernorm", "LayerNorm")
_ENCODER_ONLY = re.compile(r"(?:^|\.)(?:encoder\.layer|transformer\.layer|encoder\.layers)\Z")
MAX_LAYERS = 4096
"""No published model has a tenth of this; more is a hostile file."""


@dataclass(frozen=True, slots=True)
class _Stack:
    """The numbered layers below one path; ``layers[i]`` maps names relative to layer i to tensors."""

    path: str
    layers: tuple[dict[str, StoredTensor], ...]

    @property
    def root(self) -> str:
        """The path of the model that owns the stack: ``model`` of ``model.layers``."""
        return self.path.rpartition(".")[0]


def infer_shape(checkpoint: Checkpoint) -> Shape:
    """Say what the model is. Never raises for a readable checkpoint: what is not understood is an OtherShape."""
    names = checkpoint.tensors
    if any(".lora_A." in name or ".lora_B." in name for name in names):
        return OtherShape(
            kind="LoRA adapter", reason="an adapter runs only with the model that it adapts"
        )
    config = with_family_defaults(text_config(checkpoint.config or {}))
    stacks = _find_stacks(names)
    top = {name: tensor for name, tensor in names.items() if _LAYER.match(name) is None}
    if not stacks:
        return _without_layers(top)
    owned = [stack for stack in stacks if _find_embedding(top, stack) is not None]
    if {"encoder", "decoder"} <= {part for stack in stacks for part in stack.path.split(".")}:
        return OtherShape(
            kind="encoder-decoder", reason="its two halves are tied by cross-attention"
        )
    if not owned:
        return OtherShape(
            kind="unrecognised", reason="its numbered layers have no token embedding beside them"
        )
    stack = max(owned, key=lambda item: (len(item.layers), item.path))
    return _read_transformer(checkpoint, config, stack, top)


def _find_stacks(tensors: Mapping[str, StoredTensor]) -> list[_Stack]:
    found: dict[str, dict[int, dict[str, StoredTensor]]] = {}
    for name, tensor in tensors.items():
        match = _LAYER.match(name)
        if match is not None and len(match["index"]) <= 4:
            layers = found.setdefault(match["stack"], {})
            layers.setdefault(int(match["index"]), {})[match["rest"]] = tensor
    return [
        _Stack(path, tuple(layers[index] for index in sorted(layers)))
        for path, layers in sorted(found.items())
        if len(layers) <= MAX_LAYERS
    ]


def _without_layers(top: Mapping[str, StoredTensor]) -> OtherShape:
    tables = [tensor for tensor in top.values() if len(tensor.shape) == 2]
    if len(top) <= 2 and tables:
        return OtherShape(kind="embedding table", reason="there are no layers to run")
    return OtherShape(kind="unrecognised", reason="no numbered layers with attention were found")


def _beside(
    top: Mapping[str, StoredTensor], root: str, names: tuple[str, ...]
) -> dict[str, StoredTensor] | None:
    """The parameters of the module called one of ``names`` nearest to ``root``: in it, below it, then at the top."""
    for name in names:
        at = re.compile(rf"(?P<path>(?:.*\.)?{re.escape(name)})\.(?P<part>[^.]+(?:\.[^.]+)?)\Z")
        found: dict[str, dict[str, StoredTensor]] = {}
        for tensor_name, tensor in top.items():
            match = at.match(tensor_name)
            if match is not None:
                found.setdefault(match["path"], {})[match["part"]] = tensor
        near = sorted(found, key=lambda path: (not path.startswith(root), len(path), path))
        if near:
            return found[near[0]]
    return None


def _find_embedding(top: Mapping[str, StoredTensor], stack: _Stack) -> StoredTensor | None:
    """The token embedding that belongs to ``stack``: the paths share all but the stack's own last parts."""
    root = stack.root.removesuffix("encoder").removesuffix("transformer").rstrip(".")
    weight = (_beside(top, root, EMBEDDINGS) or {}).get("weight")
    return (
        weight
        if weight is not None and len(weight.shape) == 2 and weight.name.startswith(root)
        else None
    )


def _read_transformer(
    checkpoint: Checkpoint,
    config: Mapping[str, Any],
    stack: _Stack,
    top: Mapping[str, StoredTensor],
) -> Shape:
    embedding = _find_embedding(top, stack)
    assert embedding is not None  # chosen for having one
    vocab, hidden = embedding.shape
    stated = Stated(
        heads=number(config, "heads"), kv_heads=number(config, "kv_heads"), head_dim=number(config, "head_dim"),
        active_experts=number(config, "active_experts"),
    )  # fmt: skip
    windows = layer_windows(config, len(stack.layers))
    blocks = [
        read_block(layer, stated, window)
        for layer, window in zip(stack.layers, windows, strict=True)
    ]
    readable = [block for block in blocks if block is not None]
    if len(readable) < len(blocks):
        return OtherShape(
            kind="unrecognised",
            reason=f"layer {blocks.index(None)} of {stack.path} has no attention that is known from its tensor names",
        )
    misfit = _misfit(readable, vocab, hidden)
    if misfit:
        return OtherShape(kind="unrecognised", reason=misfit)
    positions = _beside(top, stack.root, POSITIONS) or {}
    more = [tensor.name for tensor in positions.values() if len(tensor.shape) == 2]
    more += [
        tensor.name
        for tensor in (_beside(top, stack.root, TOKEN_TYPES) or {}).values()
        if len(tensor.shape) == 2
    ]
    learned = next((tensor for tensor in positions.values() if len(tensor.shape) == 2), None)
    head = next(
        (
            found
            for name in HEADS
            if (parts := _beside(top, "", (name,))) and (found := projection(name, parts))
        ),
        None,
    )
    final_norm = norm(_beside(top, stack.root, FINAL_NORMS))
    encoder = _is_encoder(config, stack, readable, final_norm, head)
    kept = _names_used(readable) | {embedding.name, *more, *_norm_names(final_norm)}
    embedding_norm = norm(_beside(top, stack.root, EMBEDDING_NORMS))
    kept |= {*_norm_names(embedding_norm), *(head.tensors if head else ())}
    common: dict[str, Any] = {
        "hidden": hidden, "vocab": vocab, "layers": tuple(readable), "embedding": embedding.name,
        "more_embeddings": tuple(more), "embedding_norm": embedding_norm, "final_norm": final_norm, "head": head,
        "max_positions": number(config, "positions") or (learned.shape[0] if learned is not None else None),
        "dtype": checkpoint.floating_dtype,
        "notes": tuple(inference_notes(checkpoint, readable, stack.path, stated, head, encoder=encoder)),
        "unused": tuple(sorted(checkpoint.tensors.keys() - kept)),
    }  # fmt: skip
    if encoder:
        return EncoderShape(**common)
    states = sum(isinstance(block.mixer, StateMixer) for block in readable)
    reason = (
        f"{states} of its {len(readable)} layers keep a linear-attention or state-space state"
        if states
        else None
    )
    return DecoderShape(**common, unrunnable=reason)


def _misfit(blocks: list[Block], vocab: int, hidden: int) -> str:
    """Why these layers cannot follow one another, or nothing."""
    if 0 in {vocab, hidden}:
        return "its token embedding is empty"
    for index, block in enumerate(blocks):
        mixer, part = block.mixer, block.feed_forward
        entries: list[Projection] = []
        exits: list[Projection] = []
        match mixer:
            case Attention():
                entries, exits = [*mixer.projections], [mixer.output]
            case LatentAttention():
                entries, exits = [mixer.query[0], mixer.compress], [mixer.output]
            case StateMixer():
                pass
        dense = (
            [*part.routed, *([part.shared] if part.shared else [])]
            if isinstance(part, Experts)
            else [part]
            if part
            else []
        )
        for one in dense:
            entries += one.up
            exits.append(one.down)
        for item in entries:
            if item.inputs != hidden:
                return f"{item.name} of layer {index} reads {item.inputs} numbers, and the embedding gives {hidden}"
        for item in exits:
            if item.outputs != hidden:
                return f"{item.name} of layer {index} gives {item.outputs} numbers, and the next layer reads {hidden}"
    return ""


def _is_encoder(
    config: Mapping[str, Any],
    stack: _Stack,
    blocks: list[Block],
    final_norm: Norm | None,
    head: Projection | None,
) -> bool:
    """BERT's stacks are called ``encoder.layer`` and normalise after each half; config.json's architecture decides."""
    architectures = config.get("architectures")
    if isinstance(architectures, list) and any("CausalLM" in str(name) for name in architectures):
        return False
    post_norm = blocks[0].after_mixer is not None and blocks[0].before_mixer is None
    return bool(_ENCODER_ONLY.search(stack.path)) and (
        post_norm or (final_norm is None and head is None)
    )


def _names_used(blocks: list[Block]) -> set[str]:
    used: set[str] = set()
    for block in blocks:
        for item in (
            block.before_mixer,
            block.after_mixer,
            block.before_feed_forward,
            block.after_feed_forward,
        ):
            used |= set(_norm_names(item))
        for product in block_projections(block):
            used |= set(product.tensors)
        if isinstance(block.mixer, Attention):
            used |= {*_norm_names(block.mixer.query_norm), *_norm_names(block.mixer.key_norm)}
        elif isinstance(block.mixer, LatentAttention):
            used |= {*_norm_names(block.mixer.query_norm), *_norm_names(block.mixer.compress_norm)}
    return used


def _norm_names(item: Norm | None) -> tuple[str, ...]:
    return () if item is None else tuple(name for name in (item.weight, item.bias) if name)


def default_workload(checkpoint: Checkpoint) -> str:
    """What to do with a model when nothing was asked: ``chat``, ``encode``, or ``load`` where it cannot be run."""
    match infer_shape(checkpoint):
        case DecoderShape(unrunnable=None):
            return "chat"
        case EncoderShape():
            return "encode"
        case _:
            return "load"
