"""A plain torch transformer with exactly the parameters of a file: the stand-in where no model class is at hand.

The arithmetic, and with it every temporary, follows transformers 5.24's Llama: fp32 RMSNorm, rotary embeddings by
``rotate_half``, scaled-dot-product attention, logits for the last position only. Parallel residuals (NeoX, Falcon) run
one after the other, rotary is applied to whole heads, and soft caps are left out; none changes the size of what is
allocated by more than one activation. Quantised weights stay as stored, and one projection at a time is dequantised.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping

import torch
import torch.nn.functional as F  # noqa: N812 - torch's own name for it
from torch import Tensor

from vramdoc.checkpoint.shape import (
    QUANTISED,
    Attention,
    Block,
    Experts,
    FeedForward,
    LatentAttention,
    Norm,
    Projection,
    StateMixer,
    Storage,
    TransformerShape,
)  # fmt: skip
from vramdoc.workload.caches import Cache

Weights = Mapping[str, Tensor]
Layer = Callable[[Tensor], Tensor]
EPSILON = 1e-6
ROPE_BASE = 10000.0


class Plain:
    """Runs a TransformerShape with ``weights``; a decoder when given a cache, an encoder without one."""

    def __init__(
        self, shape: TransformerShape, weights: Weights, dtype: torch.dtype, *, causal: bool
    ) -> None:
        self.shape, self.dtype, self.causal = shape, dtype, causal
        self._embedding = weights[shape.embedding]
        self._more = [weights[name] for name in shape.more_embeddings]
        self._embedding_norm = _norm(shape.embedding_norm, weights)
        self._blocks = [
            _Block(block, index, weights, dtype) for index, block in enumerate(shape.layers)
        ]
        self._final_norm = _norm(shape.final_norm, weights)
        self._head = _linear(shape.head, weights, dtype) if shape.head else self._tied
        rotary = (
            next((b.rotary for b in self._blocks if b.rotary), 0)
            if not shape.more_embeddings
            else 0
        )
        self._frequencies = (
            1.0
            / ROPE_BASE
            ** (torch.arange(0, rotary, 2, device=self._embedding.device).float() / rotary)
            if rotary
            else None
        )

    def _tied(self, hidden: Tensor) -> Tensor:
        return F.linear(hidden, self._embedding.to(self.dtype))

    def hidden_states(self, ids: Tensor, cache: Cache | None = None) -> Tensor:
        """``ids [batch, tokens]`` through all layers: ``[batch, tokens, hidden]``."""
        past = cache.length if cache is not None else 0
        tokens = ids.shape[1]
        positions = torch.arange(past, past + tokens, device=ids.device)
        hidden = F.embedding(ids, self._embedding).to(self.dtype)
        for table in self._more:
            # a table of token types has fewer rows than there are positions
            rows = positions if table.shape[0] > past + tokens else torch.zeros_like(positions)
            hidden = hidden + F.embedding(rows, table).to(self.dtype)
        hidden = self._embedding_norm(hidden)
        rotary = self._rotary(positions)
        masks = _Masks(cache, tokens, ids.device, causal=self.causal)
        for block in self._blocks:
            hidden = block(hidden, rotary, cache, masks)
        if cache is not None:
            cache.length += tokens
        return self._final_norm(hidden)

    def logits(self, ids: Tensor, cache: Cache | None = None, *, every: bool = False) -> Tensor:
        """The last position's logits, as ``generate`` asks for them; those of every position for training."""
        hidden = self.hidden_states(ids, cache)
        return self._head(hidden if every else hidden[:, -1:])

    def _rotary(self, positions: Tensor) -> tuple[Tensor, Tensor] | None:
        if self._frequencies is None:
            return None
        angles = positions.float()[:, None] * self._frequencies[None, :]
        angles = torch.cat((angles, angles), dim=-1)
        return angles.cos().to(self.dtype), angles.sin().to(self.dtype)


class _Masks:
    """The attention mask of one step, made once for each key length, as transformers' ``create_causal_mask`` does.

    None where the kernel needs none: one new token over exactly its past, or a prompt with no past.
    """

    def __init__(
        self, cache: Cache | None, tokens: int, device: torch.device, *, causal: bool
    ) -> None:
        self.causal = causal
        self._cache, self._tokens, self._device = cache, tokens, device
        self._past = cache.length if cache is not None else 0
        self._made: dict[tuple[int, int | None], Tensor] = {}

    def of(self, layer: int, window: int | None) -> Tensor | None:
        if self._cache is None or not self.causal:
            return None
        keys = self._cache.layers[layer].key_length(self._past, self._tokens)
        total = self._past + self._tokens
        slides = window is not None and self._tokens > 1 and keys > window
        if keys <= total and not slides and (self._tokens == 1 or self._past == 0):
            return None
        if (keys, window) not in self._made:
            first = max(0, total - keys)
            query = torch.arange(self._past, total, device=self._device)[:, None]
            key = torch.arange(first, first + keys, device=self._device)[None, :]
            mask = key <= query
            if window is not None:
                mask = mask & (key > query - window)
            self._made[keys, window] = mask[None, None]
        return self._made[keys, window]


class _Block:
    def __init__(self, block: Block, index: int, weights: Weights, dtype: torch.dtype) -> None:
        self._norms = [
            _norm(norm, weights)
            for norm in (
                block.before_mixer,
                block.after_mixer,
                block.before_feed_forward,
                block.after_feed_forward,
            )
        ]
        # BERT normalises after the residual, Gemma 2 before it
        self._post_norm = block.before_mixer is None and block.after_mixer is not None
        match block.mixer:
            case Attention():
                self._mixer: _Attention | _Latent = _Attention(block.mixer, index, weights, dtype)
                self.rotary = block.mixer.head_dim
            case LatentAttention():
                self._mixer = _Latent(block.mixer, index, weights, dtype)
                self.rotary = block.mixer.rope
            case StateMixer():
                raise NotImplementedError(
                    block.mixer.kind
                )  # run() never builds one: DecoderShape.unrunnable
        self._feed_forward = _feed_forward(block.feed_forward, weights, dtype)

    def __call__(
        self,
        hidden: Tensor,
        rotary: tuple[Tensor, Tensor] | None,
        cache: Cache | None,
        masks: _Masks,
    ) -> Tensor:
        before, after, before_ff, after_ff = self._norms
        mixed = self._mixer(before(hidden), rotary, cache, masks)
        hidden = after(hidden + mixed) if self._post_norm else hidden + after(mixed)
        if self._feed_forward is None:
            return hidden
        fed = self._feed_forward(before_ff(hidden))
        return after_ff(hidden + fed) if self._post_norm else hidden + after_ff(fed)


def _rotate(states: Tensor, rotary: tuple[Tensor, Tensor]) -> Tensor:
    cos, sin = rotary
    half = states.shape[-1] // 2
    return states * cos + torch.cat((-states[..., half:], states[..., :half]), dim=-1) * sin


def _attend(
    query: Tensor, key: Tensor, value: Tensor, mask: Tensor | None, *, causal: bool
) -> Tensor:
    """As transformers 5.24 ``sdpa_attention_forward``: grouped queries go to the kernel where no mask is needed.

    With a mask, one query token is packed into its group, more are met by repeated keys and values.
    """
    groups = query.shape[1] // key.shape[1]
    grouped = groups > 1 and mask is None and key.shape[-1] == value.shape[-1] <= 256
    tokens = query.shape[2]
    packed = groups > 1 and not grouped and tokens == 1
    if packed:
        query = query.reshape(query.shape[0], key.shape[1], groups, query.shape[3])
    elif groups > 1 and not grouped:
        key, value = key.repeat_interleave(groups, dim=1), value.repeat_interleave(groups, dim=1)
    mixed = F.scaled_dot_product_attention(
        query,
        key,
        value,
        attn_mask=mask,
        is_causal=causal and mask is None and tokens > 1,
        enable_gqa=grouped,
    )
    if packed:
        mixed = mixed.reshape(mixed.shape[0], -1, 1, mixed.shape[3])
    return mixed.transpose(1, 2).contiguous()


class _Attention:
    def __init__(self, shape: Attention, index: int, weights: Weights, dtype: torch.dtype) -> None:
        self._shape, self._index = shape, index
        self._projections = [_linear(item, weights, dtype) for item in shape.projections]
        self._output = _linear(shape.output, weights, dtype)
        self._query_norm, self._key_norm = (
            _norm(shape.query_norm, weights),
            _norm(shape.key_norm, weights),
        )
        self._per_head = shape.query_norm is None or shape.query_norm.width == shape.head_dim

    def __call__(
        self,
        hidden: Tensor,
        rotary: tuple[Tensor, Tensor] | None,
        cache: Cache | None,
        masks: _Masks,
    ) -> Tensor:
        shape = self._shape
        batch, tokens, _ = hidden.shape
        gate = None
        if len(self._projections) == 1:
            widths = [shape.heads * shape.head_dim, shape.key_width, shape.value_width]
            query, key, value = self._projections[0](hidden).split(widths, dim=-1)
        else:
            query, key, value = (project(hidden) for project in self._projections)
            if shape.gated:
                query, gate = query.chunk(2, dim=-1)
        if not self._per_head:
            query, key = self._query_norm(query), self._key_norm(key)
        query = query.reshape(batch, tokens, shape.heads, shape.head_dim)
        key = key.reshape(batch, tokens, shape.kv_heads, shape.head_dim)
        if self._per_head:
            query, key = self._query_norm(query), self._key_norm(key)
        query, key = query.transpose(1, 2), key.transpose(1, 2)
        value = value.reshape(batch, tokens, shape.kv_heads, shape.value_dim).transpose(1, 2)
        if rotary is not None:
            query, key = _rotate(query, rotary), _rotate(key, rotary)
        if cache is not None:
            key, value = cache.update(self._index, key, value)
        mixed = _attend(query, key, value, masks.of(self._index, shape.window), causal=masks.causal)
        mixed = mixed.reshape(batch, tokens, -1)
        return self._output(mixed if gate is None else mixed * torch.sigmoid(gate))


class _Latent:
    """DeepSeek-V2 in transformers 5.24: latent and rotary key are cached, and expanded to full heads each step."""

    def __init__(
        self, shape: LatentAttention, index: int, weights: Weights, dtype: torch.dtype
    ) -> None:
        self._shape, self._index = shape, index
        self._query = [_linear(item, weights, dtype) for item in shape.query]
        self._query_norm, self._norm = (
            _norm(shape.query_norm, weights),
            _norm(shape.compress_norm, weights),
        )
        self._compress, self._expand, self._output = (
            _linear(item, weights, dtype) for item in (shape.compress, shape.expand, shape.output)
        )

    def __call__(
        self,
        hidden: Tensor,
        rotary: tuple[Tensor, Tensor] | None,
        cache: Cache | None,
        masks: _Masks,
    ) -> Tensor:
        shape = self._shape
        batch, tokens, _ = hidden.shape
        query = self._query[0](hidden)
        if len(self._query) == 2:
            query = self._query[1](self._query_norm(query))
        query = query.view(batch, tokens, shape.heads, shape.nope + shape.rope).transpose(1, 2)
        query_nope, query_rope = query.split([shape.nope, shape.rope], dim=-1)
        latent, key_rope = self._compress(hidden).split([shape.latent, shape.rope], dim=-1)
        latent = self._norm(latent).view(batch, 1, tokens, shape.latent)
        key_rope = key_rope.view(batch, 1, tokens, shape.rope)
        if rotary is not None:
            query_rope, key_rope = _rotate(query_rope, rotary), _rotate(key_rope, rotary)
        if cache is not None:
            latent, key_rope = cache.update(self._index, latent, key_rope)
        keys = latent.shape[2]
        expanded = self._expand(latent.view(batch, keys, shape.latent))
        expanded = expanded.view(batch, keys, shape.heads, shape.nope + shape.value_dim).transpose(
            1, 2
        )
        key_nope, value = expanded.split([shape.nope, shape.value_dim], dim=-1)
        query = torch.cat((query_nope, query_rope), dim=-1)
        key = torch.cat((key_nope, key_rope.expand(-1, shape.heads, -1, -1)), dim=-1)
        mixed = _attend(query, key, value, masks.of(self._index, None), causal=masks.causal)
        return self._output(mixed.reshape(batch, tokens, -1))


def _feed_forward(
    part: FeedForward | Experts | None, weights: Weights, dtype: torch.dtype
) -> Layer | None:
    if part is None:
        return None
    return (
        _Experts(part, weights, dtype)
        if isinstance(part, Experts)
        else _dense(part, weights, dtype)
    )


def _dense(
    part: FeedForward, weights: Weights, dtype: torch.dtype, expert: int | None = None
) -> Layer:
    ups = [_linear(item, weights, dtype, expert) for item in part.up]
    down = _linear(part.down, weights, dtype, expert)
    if not part.gated:
        return lambda hidden: down(F.gelu(ups[0](hidden)))
    if len(ups) == 2:
        return lambda hidden: down(F.silu(ups[0](hidden)) * ups[1](hidden))

    def fused(hidden: Tensor) -> Tensor:
        gate, up = ups[0](hidden).chunk(2, dim=-1)
        return down(up * F.silu(gate))

    return fused


class _Experts:
    """A mixture of experts whose tokens are spread evenly: which expert a token visits is a value, and values of a
    virtual device mean nothing. Even spreading is the least memory that routing can need.
    """  # noqa: D205

    def __init__(self, part: Experts, weights: Weights, dtype: torch.dtype) -> None:
        self._part = part
        self._router = _linear(part.router, weights, dtype)
        stacked = len(part.routed) == 1 and part.count > 1
        self._routed = [
            _dense(
                part.routed[0] if stacked else part.routed[index],
                weights,
                dtype,
                index if stacked else None,
            )
            for index in range(part.count if stacked else len(part.routed))
        ]
        self._shared = _dense(part.shared, weights, dtype) if part.shared else None

    def __call__(self, hidden: Tensor) -> Tensor:
        flat = hidden.reshape(-1, hidden.shape[-1])
        scores = F.softmax(self._router(flat), dim=1, dtype=torch.float)
        scores, _ = torch.topk(scores, self._part.active, dim=-1)
        scores = (scores / scores.sum(dim=-1, keepdim=True)).to(hidden.dtype)
        mixed = torch.zeros_like(flat)
        visits, count = flat.shape[0] * self._part.active, len(self._routed)
        for index, expert in enumerate(self._routed):
            tokens = visits // count + (index < visits % count)
            if tokens:
                rows = torch.arange(tokens, device=flat.device) % flat.shape[0]
                out = expert(flat[rows]) * scores[rows, :1]
                mixed.index_add_(0, rows, out.to(mixed.dtype))
        if self._shared is not None:
            mixed = mixed + self._shared(flat)
        return mixed.view_as(hidden)


def _norm(norm: Norm | None, weights: Weights) -> Layer:
    if norm is None:
        return lambda hidden: hidden
    weight, width = weights[norm.weight], norm.width
    if norm.bias is not None:
        bias = weights[norm.bias]
        return lambda hidden: F.layer_norm(hidden, (width,), weight, bias, EPSILON)

    def rms(hidden: Tensor) -> Tensor:
        dtype = hidden.dtype
        hidden = hidden.to(torch.float32)
        variance = hidden.pow(2).mean(-1, keepdim=True)
        hidden = hidden * torch.rsqrt(variance + EPSILON)
        return weight * hidden.to(dtype)

    return rms


def _linear(
    part: Projection, weights: Weights, dtype: torch.dtype, expert: int | None = None
) -> Layer:
    weight = weights[part.tensors[0]]
    bias = weights[part.bias] if part.bias else None
    if part.storage is Storage.CONV1D:
        assert bias is not None  # only a bias tells a Conv1D from a Linear

        def conv1d(hidden: Tensor) -> Tensor:
            return torch.addmm(bias, hidden.reshape(-1, part.inputs), weight).view(
                *hidden.shape[:-1], part.outputs
            )

        return conv1d
    if part.storage is Storage.STACKED:
        assert expert is not None  # a stacked weight belongs to the experts
        member = weight[expert] if weight.shape[1] == part.outputs else weight[expert].T
        return lambda hidden: F.linear(hidden, member)
    if part.storage in QUANTISED:
        return lambda hidden: F.linear(hidden, _dequantise(part, weight, dtype), bias)
    return lambda hidden: F.linear(hidden, weight, bias)


def _dequantise(part: Projection, weight: Tensor, dtype: torch.dtype) -> Tensor:
    """The projection's weight in the computing type, for one product. Codes that torch cannot cast get their room only."""
    if part.storage in {Storage.FP8, Storage.INT8}:
        return weight.to(dtype)
    return torch.empty((part.outputs, part.inputs), dtype=dtype, device=weight.device)
