"""Attention of the plain transformer: grouped heads and multi-head latent attention, with their masks and caches."""

from __future__ import annotations

import torch
import torch.nn.functional as F  # noqa: N812 - torch's own name for it
from torch import Tensor

from vramdoc.checkpoint.shape import Attention, LatentAttention
from vramdoc.workload.caches import Cache
from vramdoc.workload.plain_layers import Weights, linear, norm

Rotary = tuple[Tensor, Tensor]
"""Cosines and sines of the step's positions."""


class Masks:
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
        """The mask for one layer; window is the layer's own."""
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


def _rotate(states: Tensor, rotary: Rotary) -> Tensor:
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


class GroupedAttention:
    """Multi-head, grouped-query and multi-query attention, from separate or fused projections (``LlamaAttention``)."""

    def __init__(self, shape: Attention, index: int, weights: Weights, dtype: torch.dtype) -> None:
        self._shape, self._index = shape, index
        self._projections = [linear(item, weights, dtype) for item in shape.projections]
        self._output = linear(shape.output, weights, dtype)
        self._query_norm, self._key_norm = (
            norm(shape.query_norm, weights),
            norm(shape.key_norm, weights),
        )
        self._per_head = shape.query_norm is None or shape.query_norm.width == shape.head_dim

    def __call__(
        self,
        hidden: Tensor,
        rotary: Rotary | None,
        cache: Cache | None,
        masks: Masks,
    ) -> Tensor:
        """``hidden [batch, tokens, hidden]`` mixed over the past that ``cache`` holds, and itself."""
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


class Latent:
    """DeepSeek-V2 in transformers 5.24: latent and rotary key are cached, and expanded to full heads each step."""

    def __init__(
        self, shape: LatentAttention, index: int, weights: Weights, dtype: torch.dtype
    ) -> None:
        self._shape, self._index = shape, index
        self._query = [linear(item, weights, dtype) for item in shape.query]
        self._query_norm, self._norm = (
            norm(shape.query_norm, weights),
            norm(shape.compress_norm, weights),
        )
        self._compress, self._expand, self._output = (
            linear(item, weights, dtype) for item in (shape.compress, shape.expand, shape.output)
        )

    def __call__(
        self,
        hidden: Tensor,
        rotary: Rotary | None,
        cache: Cache | None,
        masks: Masks,
    ) -> Tensor:
        """``hidden [batch, tokens, hidden]`` mixed over the past that ``cache`` holds, and itself."""
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
