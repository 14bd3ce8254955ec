"""A plain torch transformer with exactly the parameters of a file: the stand-in where no model class is at hand.

The arithmetic, and with it every temporary, follows transformers 5.24's Llama: fp32 RMSNorm, rotary embeddings by
``rotate_half``, scaled-dot-product attention, logits for the last position only. Parallel residuals (NeoX, Falcon) run
one after the other, rotary is applied to whole heads, and soft caps are left out; none changes the size of what is
allocated by more than one activation. Quantised weights stay as stored, and one projection at a time is dequantised.
"""

from __future__ import annotations

import torch
import torch.nn.functional as F  # noqa: N812 - torch's own name for it
from torch import Tensor

from vramdoc.checkpoint.shape import Attention, Block, LatentAttention, StateMixer, TransformerShape
from vramdoc.workload.caches import Cache
from vramdoc.workload.plain_attention import GroupedAttention, Latent, Masks, Rotary
from vramdoc.workload.plain_layers import Weights, feed_forward, linear, norm

ROPE_BASE = 10000.0


class Plain:
    """Runs a TransformerShape with ``weights``; a decoder when given a cache, an encoder without one."""

    def __init__(
        self, shape: TransformerShape, weights: Weights, dtype: torch.dtype, *, causal: bool
    ) -> None:
        self.shape, self.dtype, self.causal = shape, dtype, causal
        self._embedding = weights[shape.embedding]
        self._more = [weights[name] for name in shape.more_embeddings]
        self._embedding_norm = norm(shape.embedding_norm, weights)
        self._blocks = [
            _Block(block, index, weights, dtype) for index, block in enumerate(shape.layers)
        ]
        self._final_norm = norm(shape.final_norm, weights)
        self._head = linear(shape.head, weights, dtype) if shape.head else self._tied
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
        masks = Masks(cache, tokens, ids.device, causal=self.causal)
        for block in self._blocks:
            hidden = block(hidden, rotary, cache, masks)
        if cache is not None:
            cache.length += tokens
        return self._final_norm(hidden)

    def logits(self, ids: Tensor, cache: Cache | None = None, *, every: bool = False) -> Tensor:
        """The last position's logits, as ``generate`` asks for them; those of every position for training."""
        hidden = self.hidden_states(ids, cache)
        return self._head(hidden if every else hidden[:, -1:])

    def _rotary(self, positions: Tensor) -> Rotary | None:
        if self._frequencies is None:
            return None
        angles = positions.float()[:, None] * self._frequencies[None, :]
        angles = torch.cat((angles, angles), dim=-1)
        return angles.cos().to(self.dtype), angles.sin().to(self.dtype)


class _Block:
    def __init__(self, block: Block, index: int, weights: Weights, dtype: torch.dtype) -> None:
        self._norms = [
            norm(item, weights)
            for item in (
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
                self._mixer: GroupedAttention | Latent = GroupedAttention(
                    block.mixer, index, weights, dtype
                )
                self.rotary = block.mixer.head_dim
            case LatentAttention():
                self._mixer = Latent(block.mixer, index, weights, dtype)
                self.rotary = block.mixer.rope
            case StateMixer():
                raise NotImplementedError(
                    block.mixer.kind
                )  # run() never builds one: DecoderShape.unrunnable
        self._feed_forward = feed_forward(block.feed_forward, weights, dtype)

    def __call__(
        self,
        hidden: Tensor,
        rotary: Rotary | None,
        cache: Cache | None,
        masks: Masks,
    ) -> Tensor:
        before, after, before_ff, after_ff = self._norms
        mixed = self._mixer(before(hidden), rotary, cache, masks)
        hidden = after(hidden + mixed) if self._post_norm else hidden + after(mixed)
        if self._feed_forward is None:
            return hidden
        fed = self._feed_forward(before_ff(hidden))
        return after_ff(hidden + fed) if self._post_norm else hidden + after_ff(fed)
