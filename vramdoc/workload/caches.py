"""KV caches as code: how the keys and values of a conversation are kept between its steps.

Each strategy is one class with the arithmetic of the implementation that people run (named in its docstring), so that
the allocator sees the same requests. A cache does not know the model; it is told each layer's new keys and values.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Protocol

import torch
from torch import Tensor

CHUNK = 256
"""Tokens by which a chunked cache grows."""


class LayerCache(Protocol):
    """Keys and values of one layer, each ``[batch, heads, tokens, size]``."""

    def update(self, key: Tensor, value: Tensor, past: int) -> tuple[Tensor, Tensor]:
        """Keep the new tokens behind the ``past`` ones; return what attention has to read."""

    def tensors(self) -> Iterator[Tensor]:
        """Everything that is held on the device between steps."""

    def key_length(self, past: int, new: int) -> int:
        """How long the keys are that ``update`` will return."""


@dataclass(slots=True)
class Dynamic:
    """transformers 5.24 ``DynamicLayer``: ``torch.cat`` a step; old and new coexist while it copies."""

    key: Tensor | None = None
    value: Tensor | None = None

    def update(self, key: Tensor, value: Tensor, past: int) -> tuple[Tensor, Tensor]:  # noqa: D102
        if past == 0:
            self.key, self.value = key.new_empty(0), value.new_empty(0)
        assert self.key is not None
        assert self.value is not None
        self.key = torch.cat([self.key, key], dim=-2)
        self.value = torch.cat([self.value, value], dim=-2)
        return self.key, self.value

    def tensors(self) -> Iterator[Tensor]:  # noqa: D102
        yield from (tensor for tensor in (self.key, self.value) if tensor is not None)

    def key_length(self, past: int, new: int) -> int:  # noqa: D102
        return past + new


@dataclass(slots=True)
class Static:
    """transformers 5.24 ``StaticLayer``: everything at the first step, zeroed; attention reads it all under a mask."""

    capacity: int
    key: Tensor | None = None
    value: Tensor | None = None

    def update(self, key: Tensor, value: Tensor, past: int) -> tuple[Tensor, Tensor]:  # noqa: D102
        if self.key is None or self.value is None:
            self.key = key.new_zeros((*key.shape[:2], self.capacity, key.shape[3]))
            self.value = value.new_zeros((*value.shape[:2], self.capacity, value.shape[3]))
        at = torch.arange(past, past + key.shape[2], device=key.device)
        self.key.index_copy_(2, at, key)
        self.value.index_copy_(2, at, value)
        return self.key, self.value

    def tensors(self) -> Iterator[Tensor]:  # noqa: D102
        yield from (tensor for tensor in (self.key, self.value) if tensor is not None)

    def key_length(self, past: int, new: int) -> int:  # noqa: D102, ARG002
        return self.capacity


@dataclass(slots=True)
class Chunked:
    """Own code of many servers: room for ``CHUNK`` more tokens when full, written by index, read as a view."""

    key: Tensor | None = None
    value: Tensor | None = None

    def update(self, key: Tensor, value: Tensor, past: int) -> tuple[Tensor, Tensor]:  # noqa: D102
        end = past + key.shape[2]
        self.key, self.value = self._room(self.key, key, end), self._room(self.value, value, end)
        self.key[:, :, past:end] = key
        self.value[:, :, past:end] = value
        return self.key[:, :, :end], self.value[:, :, :end]

    @staticmethod
    def _room(held: Tensor | None, new: Tensor, tokens: int) -> Tensor:
        have = 0 if held is None else held.shape[2]
        if tokens <= have:
            assert held is not None
            return held
        grown = -(-tokens // CHUNK) * CHUNK
        more = new.new_empty((*new.shape[:2], grown - have, new.shape[3]))
        return more if held is None else torch.cat([held, more], dim=2)

    def tensors(self) -> Iterator[Tensor]:  # noqa: D102
        yield from (tensor for tensor in (self.key, self.value) if tensor is not None)

    def key_length(self, past: int, new: int) -> int:  # noqa: D102
        return past + new


class Cache:
    """The caches of all layers of one conversation, and how many tokens they hold."""

    def __init__(self, layers: list[LayerCache]) -> None:
        self.layers = layers
        self.length = 0

    def update(self, layer: int, key: Tensor, value: Tensor) -> tuple[Tensor, Tensor]:
        """Keep a layer's new keys and values; return all that attention has to read."""
        return self.layers[layer].update(key, value, self.length)

    def held_bytes(self) -> int:
        """Bytes of the tensors held now, rounding of the allocator not counted."""
        return sum(tensor.nbytes for layer in self.layers for tensor in layer.tensors())


STRATEGIES: dict[str, Callable[[int], LayerCache]] = {
    "dynamic": lambda _capacity: Dynamic(),
    "static": Static,
    "chunked": lambda _capacity: Chunked(),
}
"""``--cache`` names to one layer's cache for at most ``capacity`` tokens."""


def open_cache(strategy: str, layers: int, capacity: int) -> Cache:
    """An empty cache for a conversation of at most ``capacity`` tokens."""
    make = STRATEGIES[strategy]
    return Cache([make(capacity) for _ in range(layers)])
