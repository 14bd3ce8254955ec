"""LayerCache: what attention needs of one layer's cache, whatever the strategy behind it."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Protocol

from torch import Tensor


class LayerCache(Protocol):
    """Keys and values of one layer, each ``[batch, heads, tokens, size]``."""

    def update(self, key: Tensor, value: Tensor, past: int) -> tuple[Tensor, Tensor]:
        """Keep the new tokens behind the ``past`` ones; return what attention has to read."""

    def key_length(self, past: int, new: int) -> int:
        """How long the keys are that ``update`` will return."""

    def tensors(self) -> Iterator[Tensor]:
        """Everything that this conversation holds on the device between steps."""

    def close(self) -> None:
        """The conversation ends: give back what is shared with others."""


class PairCache:
    """The common case: one tensor of keys, one of values, nothing shared."""

    def __init__(self) -> None:
        self.key: Tensor | None = None
        self.value: Tensor | None = None

    def key_length(self, past: int, new: int) -> int:
        """All tokens so far."""
        return past + new

    def tensors(self) -> Iterator[Tensor]:
        """The two of them."""
        yield from (tensor for tensor in (self.key, self.value) if tensor is not None)

    def close(self) -> None:
        """Nothing is shared; the tensors go with the object."""
