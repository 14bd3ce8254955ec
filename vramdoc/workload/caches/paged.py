"""A paged cache: every layer owns a pool of blocks made at the start, and conversations take blocks from it.

As in vLLM's PagedAttention, nothing is allocated while conversations grow. Plain attention cannot read through a block
table, so each step gathers the layer's blocks into one transient; a paged kernel would not.
"""

from __future__ import annotations

from collections.abc import Iterator

import torch
from torch import Tensor

BLOCK = 16
"""Tokens a block, vLLM's default."""


class Pool:
    """One layer's blocks, ``[blocks, batch, heads, BLOCK, size]`` for keys and for values, and which of them are free."""

    def __init__(self, blocks: int) -> None:
        self.blocks = blocks
        self.free = list(range(blocks - 1, -1, -1))
        self.key: Tensor | None = None
        self.value: Tensor | None = None

    def take(self, count: int) -> list[int]:
        """``count`` free blocks. The pool is sized for all conversations, so there always are as many."""
        taken = self.free[len(self.free) - count :]
        assert len(taken) == count
        del self.free[len(self.free) - count :]
        return taken


class Paged:
    """One conversation's part of a layer's pool."""

    def __init__(self, pool: Pool) -> None:
        self._pool = pool
        self._table: list[int] = []

    def update(self, key: Tensor, value: Tensor, past: int) -> tuple[Tensor, Tensor]:
        """Write the new tokens into blocks; gather all of this conversation's."""
        pool, end = self._pool, past + key.shape[2]
        if pool.key is None or pool.value is None:
            pool.key, pool.value = _blocks(pool.blocks, key), _blocks(pool.blocks, value)
        self._table += pool.take(-(-end // BLOCK) - len(self._table))
        tokens = torch.arange(past, end, device=key.device)
        table = torch.tensor(self._table, device=key.device)
        block, offset = table[tokens // BLOCK], tokens % BLOCK
        pool.key[block, :, :, offset] = key.permute(2, 0, 1, 3)
        pool.value[block, :, :, offset] = value.permute(2, 0, 1, 3)
        return _gather(pool.key, table, end), _gather(pool.value, table, end)

    def key_length(self, past: int, new: int) -> int:
        """All tokens so far."""
        return past + new

    def tensors(self) -> Iterator[Tensor]:
        """This conversation's blocks, as a part of the pool."""
        for pool in (self._pool.key, self._pool.value):
            if pool is not None:
                yield pool[: len(self._table)]

    def close(self) -> None:
        """Give the blocks back."""
        self._pool.free += reversed(self._table)
        self._table = []


def _blocks(count: int, like: Tensor) -> Tensor:
    return like.new_zeros((count, *like.shape[:2], BLOCK, like.shape[3]))


def _gather(pool: Tensor, table: Tensor, end: int) -> Tensor:
    blocks = pool.index_select(0, table)
    _, batch, heads, _, size = blocks.shape
    return blocks.permute(1, 2, 0, 3, 4).reshape(batch, heads, -1, size)[:, :, :end]
