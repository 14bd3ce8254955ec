"""What autograd graphs keep for a backward pass: the storages that their nodes saved.

It reads the saved tensors as they lie there (``SavedTensor.data``; torch 2.14 has it) and unpacks nothing, so no hook of the
program runs. It knows no holder.
"""

from __future__ import annotations

from collections.abc import Iterator
from functools import cache
from typing import Any

import torch

_SavedTensor = getattr(torch._C._autograd, "SavedTensor", None)  # noqa: SLF001 # autograd's name for it
IS_READABLE = hasattr(_SavedTensor, "data") and hasattr(_SavedTensor, "unpack_hook")
"""Whether this release shows saved tensors without unpacking them."""

MOST_NODES = 300_000
"""Nodes walked in one survey; at 2 µs each. A graph of an 8B model's training step has some 5,000."""


class SavedTensors:
    """One walk over the graphs of many tensors. A node is visited once, for the first tensor that leads to it."""

    def __init__(self) -> None:
        self._seen: dict[int, Any] = {}  # the nodes themselves, so that no identity is used twice
        self.is_complete = IS_READABLE

    def of(self, tensor: torch.Tensor, inner: set[int]) -> Iterator[torch.Tensor]:
        """Tensors that the graph of ``tensor`` saved and that no graph before it did.

        The identities of the nodes behind its first one are added to ``inner``.
        """
        first = tensor.grad_fn
        waiting = [first]
        while waiting:
            node = waiting.pop()
            if node is None:
                continue
            if node is not first:
                inner.add(id(node))
            if id(node) in self._seen:
                continue
            if len(self._seen) >= MOST_NODES:
                self.is_complete = False
                return
            self._seen[id(node)] = node
            waiting += [following for following, _ in node.next_functions]
            yield from _saved(node)


def _saved(node: Any) -> Iterator[torch.Tensor]:
    for name in _names(type(node)):  # type: ignore[arg-type] # a type can be hashed
        try:
            value = getattr(node, name)
        except RuntimeError:  # given up after a backward pass
            continue
        for entry in value if isinstance(value, tuple | list) else (value,):
            if entry is None or entry.unpack_hook is not None:
                continue
            if type(entry.data) in {torch.Tensor, torch.nn.Parameter}:
                yield entry.data


@cache
def _names(kind: type) -> tuple[str, ...]:
    return (
        tuple(name for name in dir(kind) if name.startswith("_raw_saved_")) if IS_READABLE else ()
    )
