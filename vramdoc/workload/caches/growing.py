"""Caches that keep whole tokens in one tensor a layer: by cat, preallocated, in chunks, in a window.

Only the way of growing differs, and it is what the allocator sees.
"""

from __future__ import annotations

import torch
from torch import Tensor

from vramdoc.workload.caches.layer import PairCache

CHUNK = 256
"""Tokens by which a chunked cache grows."""
WINDOW = 1024
"""Tokens that ``--cache sliding`` attends to."""


class Dynamic(PairCache):
    """transformers 5.24 ``DynamicLayer``: ``torch.cat`` a step; old and new coexist while it copies."""

    def update(self, key: Tensor, value: Tensor, past: int) -> tuple[Tensor, Tensor]:
        """Concatenate."""
        self.key, self.value = _cat(self.key, key, past), _cat(self.value, value, past)
        return self.key, self.value


def _cat(held: Tensor | None, new: Tensor, past: int) -> Tensor:
    """The first step concatenates too, with an empty tensor, and so copies."""
    if past == 0 or held is None:
        held = new.new_empty(0)
    return torch.cat([held, new], dim=-2)


class Static(PairCache):
    """transformers 5.24 ``StaticLayer``: all of it at the first step, zeroed; attention reads it all under a mask."""

    def __init__(self, capacity: int) -> None:
        super().__init__()
        self._capacity = capacity

    def update(self, key: Tensor, value: Tensor, past: int) -> tuple[Tensor, Tensor]:
        """Write by index."""
        if self.key is None or self.value is None:
            self.key = key.new_zeros((*key.shape[:2], self._capacity, key.shape[3]))
            self.value = value.new_zeros((*value.shape[:2], self._capacity, value.shape[3]))
        at = torch.arange(past, past + key.shape[2], device=key.device)
        self.key.index_copy_(2, at, key)
        self.value.index_copy_(2, at, value)
        return self.key, self.value

    def key_length(self, past: int, new: int) -> int:  # noqa: ARG002 - always the same
        """Everything, used or not."""
        return self._capacity


class Chunked(PairCache):
    """The own code of many servers: room for ``CHUNK`` more tokens when full, written by index, read as a view."""

    def update(self, key: Tensor, value: Tensor, past: int) -> tuple[Tensor, Tensor]:
        """Make room if there is none, then write."""
        end = past + key.shape[2]
        self.key, self.value = _room(self.key, key, end), _room(self.value, value, end)
        self.key[:, :, past:end] = key
        self.value[:, :, past:end] = value
        return self.key[:, :, :end], self.value[:, :, :end]


def _room(held: Tensor | None, new: Tensor, tokens: int) -> Tensor:
    have = 0 if held is None else held.shape[2]
    if held is not None and tokens <= have:
        return held
    grown = -(-tokens // CHUNK) * CHUNK
    more = new.new_empty((*new.shape[:2], grown - have, new.shape[3]))
    return more if held is None else torch.cat([held, more], dim=2)


class Sliding(PairCache):
    """transformers 5.24 ``DynamicSlidingWindowLayer``: cat, then keep a view of the last ``WINDOW - 1`` tokens.

    The view keeps all of its storage alive until the next step, so a long prompt costs its full length.
    """

    def update(self, key: Tensor, value: Tensor, past: int) -> tuple[Tensor, Tensor]:
        """Concatenate, return everything, keep the window."""
        key, value = _cat(self.key, key, past), _cat(self.value, value, past)
        self.key, self.value = key[:, :, -WINDOW + 1 :], value[:, :, -WINDOW + 1 :]
        return key, value

    def key_length(self, past: int, new: int) -> int:
        """What is left of the past, and the new tokens."""
        return min(past, WINDOW - 1) + new
