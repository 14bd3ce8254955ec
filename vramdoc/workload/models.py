"""Model: what a workload needs of something that runs. Two kinds: the transformers class, and a plain one from shapes."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any, Protocol

import torch
from torch import Tensor

from vramdoc.checkpoint import Checkpoint, DecoderShape, EncoderShape, OtherShape, Shape
from vramdoc.checkpoint.config import text_config
from vramdoc.checkpoint.kv import KvLayout, layout_of_shape
from vramdoc.checkpoint.shape import QUANTISED, Experts, block_projections
from vramdoc.workload.caches import Cache, CacheFactory
from vramdoc.workload.journal import Journal
from vramdoc.workload.plain import Plain
from vramdoc.workload.spec import WorkloadSpec
from vramdoc.workload.weights import asked_dtype, load_weights, torch_dtype


class Model(Protocol):
    """Something on the device that reads tokens."""

    vocab: int
    max_positions: int | None
    is_decoder: bool
    layout: KvLayout | None
    """Of a decoder whose KV bytes are known; else None."""

    def caches(self, strategy: str, *, capacity: int, sessions: int) -> Callable[[], Any]:
        """What opens the caches of up to ``sessions`` conversations of at most ``capacity`` tokens each."""

    def close_cache(self, cache: Any) -> None:
        """The conversation ends."""

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
        cast = asked_dtype(spec.dtype)
        self.vocab, self.max_positions = shape.vocab, shape.max_positions
        dtype = cast or torch_dtype(shape.dtype) or torch.float16
        width = dtype.itemsize
        self.layout = layout_of_shape(shape, width) if isinstance(shape, DecoderShape) else None
        self.is_decoder = self.layout is not None
        self._weights = dict(_with_progress(checkpoint, cast, journal))
        self._model = Plain(shape, self._weights, dtype, causal=self.is_decoder)
        self._layers = len(shape.layers)

    def caches(self, strategy: str, *, capacity: int, sessions: int) -> Callable[[], Cache]:  # noqa: D102
        return CacheFactory(
            strategy, layers=self._layers, capacity=capacity, sessions=sessions
        ).open

    def close_cache(self, cache: Cache) -> None:  # noqa: D102
        cache.close()

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


def load_model(
    shape: Shape, checkpoint: Checkpoint, spec: WorkloadSpec, journal: Journal
) -> Model | None:
    """The model on the device: the transformers class that a config names, else the plain one; None if neither runs it.

    Why the class could not be used stands in the journal.
    """
    if isinstance(text_config(checkpoint.config or {}).get("model_type"), str):
        from vramdoc.workload.huggingface import NoClass, TransformersModel

        try:
            return TransformersModel(checkpoint, shape, spec, journal)
        except NoClass as reason:
            journal.note(f"the transformers class is not used: {reason}")
    if isinstance(shape, OtherShape) or (isinstance(shape, DecoderShape) and shape.unrunnable):
        return None
    for sentence in _differences(shape):
        journal.note(sentence)
    journal.observe("model", run_by="plain")
    return PlainModel(shape, checkpoint, spec, journal)


def _differences(shape: DecoderShape | EncoderShape) -> Iterator[str]:
    """Where a plain run differs from the real one, for the report."""
    yield "run by a plain torch transformer with exactly the parameters of the file"
    if any(isinstance(block.feed_forward, Experts) for block in shape.layers):
        yield "tokens are spread evenly over the experts: who visits whom is a value, and uneven routing needs more memory"
    products = [item for block in shape.layers for item in block_projections(block)]
    if any(item.storage in QUANTISED for item in products):
        yield "quantised weights stay as stored; one projection at a time is dequantised, which a fused kernel would not do"
    if shape.unused:
        yield f"{len(shape.unused)} stored tensors are loaded and not used (first: {shape.unused[0]})"
