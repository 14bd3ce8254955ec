"""Model: what a workload needs of something that runs. Two kinds: the transformers class, and a plain one from shapes."""

from __future__ import annotations

from typing import Any, Protocol

import torch
from torch import Tensor

from vramdoc.checkpoint import Checkpoint, DecoderShape, EncoderShape
from vramdoc.checkpoint.config import text_config
from vramdoc.checkpoint.kv import KvLayout, layout_of_shape
from vramdoc.workload.caches import Cache, open_cache
from vramdoc.workload.journal import Journal
from vramdoc.workload.plain import Plain
from vramdoc.workload.spec import WorkloadSpec
from vramdoc.workload.weights import load_weights, torch_dtype


class Model(Protocol):
    """Something on the device that reads tokens."""

    vocab: int
    max_positions: int | None
    layout: KvLayout | None
    """Of a decoder; None for an encoder."""

    def open_cache(self, strategy: str, capacity: int) -> Any:
        """An empty cache for one conversation of at most ``capacity`` tokens."""

    def step(self, ids: Tensor, cache: Any) -> Tensor:
        """Read ``ids [batch, tokens]``, keep their state in ``cache``, return the last position's logits."""

    def encode(self, ids: Tensor) -> Tensor:
        """Read ``ids`` with no cache; return the hidden states."""

    def loss(self, ids: Tensor) -> Tensor:
        """The next-token loss over ``ids``, with gradients."""

    def parameters(self) -> list[Tensor]:
        """What an optimizer updates."""

    def held_bytes(self, cache: Any) -> int:
        """Bytes of the tensors that ``cache`` holds on the device."""


class PlainModel:
    """The plain transformer under the Model interface."""

    def __init__(
        self,
        shape: DecoderShape | EncoderShape,
        checkpoint: Checkpoint,
        spec: WorkloadSpec,
        journal: Journal,
    ) -> None:
        cast = getattr(torch, spec.dtype) if spec.dtype else None
        self.vocab, self.max_positions = shape.vocab, shape.max_positions
        dtype = cast or torch_dtype(shape.dtype) or torch.float16
        width = dtype.itemsize
        self.layout = layout_of_shape(shape, width) if isinstance(shape, DecoderShape) else None
        self._weights = dict(_with_progress(checkpoint, cast, journal))
        self._model = Plain(shape, self._weights, dtype, causal=self.layout is not None)
        self._layers = len(shape.layers)

    def open_cache(self, strategy: str, capacity: int) -> Cache:  # noqa: D102
        return open_cache(strategy, self._layers, capacity)

    def step(self, ids: Tensor, cache: Cache) -> Tensor:  # noqa: D102
        return self._model.logits(ids, cache)

    def encode(self, ids: Tensor) -> Tensor:  # noqa: D102
        return self._model.hidden_states(ids)

    def loss(self, ids: Tensor) -> Tensor:  # noqa: D102
        logits = self._model.logits(ids, every=True).float()
        return torch.nn.functional.cross_entropy(logits[:, :-1].flatten(0, 1), ids[:, 1:].flatten())

    def parameters(self) -> list[Tensor]:  # noqa: D102
        return [
            weight.requires_grad_()
            for weight in self._weights.values()
            if weight.is_floating_point()
        ]

    def held_bytes(self, cache: Cache) -> int:  # noqa: D102
        return cache.held_bytes()


def _with_progress(checkpoint: Checkpoint, cast: torch.dtype | None, journal: Journal) -> Any:
    total = len(checkpoint.tensors)
    for done, item in enumerate(load_weights(checkpoint, cast=cast), start=1):
        yield item
        journal.progress(done, total)


def wants_transformers(checkpoint: Checkpoint) -> bool:
    """Whether a config beside the weights names a transformers class."""
    return isinstance(text_config(checkpoint.config or {}).get("model_type"), str)
