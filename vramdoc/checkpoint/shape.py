"""What a model is made of, as far as names, shapes and config.json say: the input of the plain model and of ``kv``.

Sizes count elements, never bytes. Names are those of the stored tensors, so that a model built from a shape owns
exactly the parameters of the file. It does not know how any of it was found (``infer``).
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from enum import Enum


class Sureness(str, Enum):
    """How an inference is known, strongest first."""

    STATED = "stated in config.json"
    EXACT = "exact from tensor shapes"
    NAMED = "by tensor names"
    GUESSED = "guessed"
    UNKNOWN = "cannot be seen without config.json"

    def __str__(self) -> str:
        return self.value


@dataclass(frozen=True, slots=True)
class Inference:
    """One thing that was inferred, as a sentence, and how surely."""

    sentence: str
    sureness: Sureness

    def __str__(self) -> str:
        return f"{self.sentence} ({self.sureness})"


class Storage(str, Enum):
    """How the weight of a projection is stored."""

    LINEAR = "linear"
    """``weight [out, in]``."""
    CONV1D = "conv1d"
    """``weight [in, out]``, transformers' ``Conv1D`` (GPT-2)."""
    STACKED = "stacked"
    """``[experts, in, out]`` or ``[experts, out, in]``: all experts in one tensor."""
    GPTQ = "gptq"
    AWQ = "awq"
    FP8 = "fp8"
    INT8 = "int8"
    """bitsandbytes ``weight I8 [out, in]`` with ``SCB``."""
    INT4 = "int4"
    """bitsandbytes 4-bit: a flat ``weight U8`` with its ``quant_state``."""
    PACKED = "packed"
    """compressed-tensors ``weight_packed``."""

    def __str__(self) -> str:
        return self.value


QUANTISED = frozenset(
    {Storage.GPTQ, Storage.AWQ, Storage.FP8, Storage.INT8, Storage.INT4, Storage.PACKED}
)
"""Storages that are dequantised before they are multiplied."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Projection:
    """One matrix product. ``tensors`` are all stored tensors that it owns, the weight first."""

    name: str
    storage: Storage
    inputs: int
    outputs: int
    tensors: tuple[str, ...]
    bias: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Norm:
    """A normalisation; LayerNorm when it has a bias, RMSNorm otherwise."""

    weight: str
    bias: str | None
    width: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Attention:
    """Attention that caches keys and values of each token.

    ``query_out >= heads * head_dim``: a gated query projection (Qwen3-Next) is twice as wide.
    """

    projections: tuple[Projection, ...]
    """``(query, key, value)``, or one fused projection."""
    output: Projection
    heads: int
    kv_heads: int
    head_dim: int
    value_dim: int
    query_norm: Norm | None = None
    key_norm: Norm | None = None
    gated: bool = False
    window: int | None = None
    """Sliding window in tokens; only config.json knows it."""

    @property
    def key_width(self) -> int:
        """Elements of key state a token: what KV bytes depend on, whatever the head size."""
        return self.kv_heads * self.head_dim

    @property
    def value_width(self) -> int:
        """Elements of value state a token."""
        return self.kv_heads * self.value_dim


@dataclass(frozen=True, slots=True, kw_only=True)
class LatentAttention:
    """Multi-head latent attention (DeepSeek-V2): a compressed ``latent`` and one rotary key are cached."""

    query: tuple[Projection, ...]
    """``(q_proj,)`` or ``(q_a_proj, q_b_proj)``."""
    query_norm: Norm | None
    compress: Projection
    """``kv_a_proj_with_mqa``: hidden to latent + rope."""
    compress_norm: Norm
    expand: Projection
    """``kv_b_proj``: latent to heads * (nope + value)."""
    output: Projection
    heads: int
    latent: int
    rope: int
    nope: int
    value_dim: int


@dataclass(frozen=True, slots=True, kw_only=True)
class StateMixer:
    """A linear-attention or state-space layer: a state of constant size, nothing a token. It is not run."""

    kind: str
    """``"gated-delta"``, ``"mamba"`` or the module's own name."""
    conv_elements: int | None
    state_elements: int | None
    """None where names and shapes do not decide it."""


@dataclass(frozen=True, slots=True, kw_only=True)
class FeedForward:
    """Up, activation, down. ``up`` holds ``(gate, up)``, one fused ``(gate_up,)`` or one plain ``(up,)``."""

    up: tuple[Projection, ...]
    down: Projection

    @property
    def gated(self) -> bool:
        """Whether half of what comes up only gates the other half."""
        return sum(projection.outputs for projection in self.up) == 2 * self.down.inputs


@dataclass(frozen=True, slots=True, kw_only=True)
class Experts:
    """A mixture of experts: each token visits ``active`` of the routed ones, and all of ``shared``."""

    router: Projection
    routed: tuple[FeedForward, ...]
    """One a member, or a single stacked one that stands for ``count``."""
    count: int
    active: int
    shared: FeedForward | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Block:
    """One layer. Absent norms are None; Gemma 2 has all four."""

    mixer: Attention | LatentAttention | StateMixer
    feed_forward: FeedForward | Experts | None
    before_mixer: Norm | None
    after_mixer: Norm | None
    before_feed_forward: Norm | None
    after_feed_forward: Norm | None


def block_projections(block: Block) -> list[Projection]:
    """All matrix products of a block, in the order in which they run."""
    products: list[Projection] = []
    match block.mixer:
        case Attention():
            products += [*block.mixer.projections, block.mixer.output]
        case LatentAttention():
            mixer = block.mixer
            products += [*mixer.query, mixer.compress, mixer.expand, mixer.output]
        case StateMixer():
            pass
    parts: list[FeedForward] = []
    if isinstance(block.feed_forward, Experts):
        products.append(block.feed_forward.router)
        parts = [
            *block.feed_forward.routed,
            *([block.feed_forward.shared] if block.feed_forward.shared else []),
        ]
    elif block.feed_forward is not None:
        parts = [block.feed_forward]
    for part in parts:
        products += [*part.up, part.down]
    return products


@dataclass(frozen=True, slots=True, kw_only=True)
class TransformerShape:
    """What a decoder and an encoder share."""

    hidden: int
    vocab: int
    layers: tuple[Block, ...]
    embedding: str
    """The token embedding's tensor."""
    more_embeddings: tuple[str, ...]
    """Learned positions and token types, added to the tokens."""
    embedding_norm: Norm | None
    final_norm: Norm | None
    head: Projection | None
    """None: the output layer is the embedding (tied), or there is none."""
    max_positions: int | None
    dtype: str
    """safetensors' name of the type that the layers compute in."""
    notes: tuple[Inference, ...]
    unused: tuple[str, ...] = ()
    """Stored tensors that the plain model loads and does not use."""

    def attentions(self) -> Iterator[Attention | LatentAttention]:
        """The layers that cache something for each token."""
        return (block.mixer for block in self.layers if not isinstance(block.mixer, StateMixer))


@dataclass(frozen=True, slots=True, kw_only=True)
class DecoderShape(TransformerShape):
    """A causal language model."""

    unrunnable: str | None = None
    """Why the plain model cannot run it (a state-space layer), or None."""


@dataclass(frozen=True, slots=True, kw_only=True)
class EncoderShape(TransformerShape):
    """A bidirectional model: no cache."""


@dataclass(frozen=True, slots=True, kw_only=True)
class OtherShape:
    """Something else: only loading can be measured."""

    kind: str
    """``"LoRA adapter"``, ``"encoder-decoder"``, ``"embedding table"``, ``"unrecognised"`` ..."""
    reason: str
    notes: tuple[Inference, ...] = ()


Shape = DecoderShape | EncoderShape | OtherShape
