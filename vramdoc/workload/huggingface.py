"""The real transformers class under the Model interface, its weights put on the device by ``weights``.

The class is built with its parameters on torch's meta device, so nothing is allocated that the class will not keep;
then each parameter is allocated on the device in the file's order and copied. ``from_pretrained(device_map="cuda")``
differs in one way: it first allocates the whole model as one block and frees it (``caching_allocator_warmup``), so
that all weights come to lie in one segment. ``from_pretrained(...).to("cuda")`` allocates as we do.

No code from the model's folder is run: only classes that transformers itself holds are used.
"""

from __future__ import annotations

import copy
import inspect
import os
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import torch
from torch import Tensor

from vramdoc.checkpoint import Checkpoint, DecoderShape, Shape
from vramdoc.checkpoint.kv import KvLayout
from vramdoc.checkpoint.kv_config import kv_layout
from vramdoc.errors import UnreadableInput
from vramdoc.workload import transformers_caches
from vramdoc.workload.journal import Journal
from vramdoc.workload.spec import WorkloadSpec
from vramdoc.workload.weights import asked_dtype, load_weights, torch_dtype


class NoClass(Exception):
    """Transformers has no class that could run this model here; the message says why."""


class TransformersModel:
    """A transformers model on the device."""

    def __init__(
        self, checkpoint: Checkpoint, shape: Shape, spec: WorkloadSpec, journal: Journal
    ) -> None:
        """Build and load it.

        Raises:
            NoClass: transformers cannot run it; nothing is on the device yet.
        """
        cast = asked_dtype(spec.dtype)
        dtype = cast or torch_dtype(checkpoint.floating_dtype) or torch.float16
        self._model = _build(checkpoint, dtype)
        config = self._model.config.get_text_config()
        self.vocab = int(config.vocab_size)
        self.max_positions: int | None = getattr(config, "max_position_embeddings", None)
        self.is_decoder = bool(self._model.can_generate())
        self.layout = _layout(checkpoint, shape, dtype) if self.is_decoder else None
        if self.is_decoder and (
            reason := transformers_caches.why_not(spec.cache, self._model.config, self.layout)
        ):
            raise NoClass(reason)
        accepts = inspect.signature(self._model.forward).parameters
        # renamed in transformers 5.24
        self._cache_keyword = "cache" if "cache" in accepts else "past_key_values"
        self._last_only = {"logits_to_keep": 1} if "logits_to_keep" in accepts else {}
        name = type(self._model).__name__
        journal.note(f"run by transformers' {name}, its weights loaded tensor by tensor")
        journal.observe("model", run_by=f"transformers {name}")
        _fill(self._model, checkpoint, cast, journal)
        self._model.train(spec.name == "train")

    def caches(self, strategy: str, *, capacity: int, sessions: int) -> Callable[[], Any]:  # noqa: D102, ARG002
        return transformers_caches.opener(strategy, self._model.config, capacity)

    def close_cache(self, cache: Any) -> None:
        """Nothing is shared; the tensors go with the object."""

    def step(self, ids: Tensor, cache: Any) -> Tensor:  # noqa: D102
        return self._model(
            input_ids=ids, use_cache=True, **{self._cache_keyword: cache}, **self._last_only
        ).logits

    def encode(self, ids: Tensor) -> Tensor:  # noqa: D102
        return self._model(input_ids=ids)[0]

    def loss(self, ids: Tensor) -> Tensor:  # noqa: D102
        if self.is_decoder:
            return self._model(input_ids=ids, labels=ids, use_cache=False).loss
        return self.encode(ids).float().pow(2).mean()

    def parameters(self) -> list[Tensor]:  # noqa: D102
        return list(self._model.parameters())

    def held_bytes(self, cache: Any) -> int:
        """Bytes of the storages behind the cache's tensors: after a long prompt a sliding layer holds all of it."""
        return transformers_caches.held_bytes(cache)


def _layout(checkpoint: Checkpoint, shape: Shape, dtype: torch.dtype) -> KvLayout | None:
    decoder = shape if isinstance(shape, DecoderShape) else None
    try:
        return kv_layout(checkpoint.config, decoder, dtype.itemsize)[0]
    except UnreadableInput:
        return None


def _build(checkpoint: Checkpoint, dtype: torch.dtype) -> Any:
    """The class that config.json names, its parameters on the meta device and its buffers on the GPU."""
    os.environ.setdefault("HF_HUB_OFFLINE", "1")  # some classes would look for kernels on the Hub
    try:
        import transformers
    except ImportError as error:
        raise NoClass("transformers is not installed (pip install 'vramdoc[hf]')") from error
    values = copy.deepcopy(dict(checkpoint.config or {}))
    if "quantization_config" in values:
        raise NoClass(
            "the weights are quantised, and the class would need the quantiser's own kernels"
        )
    for key in ("attn_implementation", "_attn_implementation", "auto_map"):
        values.pop(key, None)  # a config may not choose code
    model_type = values.pop("model_type", None)
    if model_type not in transformers.CONFIG_MAPPING:
        raise NoClass(
            f"transformers {transformers.__version__} has no model type {str(model_type)[:60]!r}"
        )
    try:
        config = transformers.CONFIG_MAPPING[model_type].from_dict(values)
    except Exception as error:
        raise NoClass(f"transformers refuses its config.json ({_first_line(error)})") from error
    if getattr(config, "is_encoder_decoder", False):
        raise NoClass("it is an encoder-decoder")
    architectures = config.architectures or [None]
    named = getattr(transformers, str(architectures[0]), None)
    if not (isinstance(named, type) and issubclass(named, transformers.PreTrainedModel)):
        raise NoClass(f"transformers has no class {str(architectures[0])[:60]!r}")
    default = torch.get_default_dtype()
    torch.set_default_dtype(dtype)
    try:
        with _parameters_on_meta():
            model = named(config)
    except Exception as error:
        raise NoClass(
            f"{named.__name__} cannot be built from its config.json ({_first_line(error)})"
        ) from error
    finally:
        torch.set_default_dtype(default)
    return model


def _first_line(error: Exception) -> str:
    return (str(error).strip().splitlines() or [type(error).__name__])[0][:160]


@contextmanager
def _parameters_on_meta() -> Iterator[None]:
    """Parameters go to the meta device the moment they are registered; buffers keep the values their modules give them."""
    register = torch.nn.Module.register_parameter

    def register_on_meta(
        module: torch.nn.Module, name: str, parameter: torch.nn.Parameter | None
    ) -> None:
        if parameter is not None and parameter.device.type != "meta":
            parameter = torch.nn.Parameter(
                parameter.to("meta"), requires_grad=parameter.requires_grad
            )
        register(module, name, parameter)

    torch.nn.Module.register_parameter = register_on_meta
    try:
        yield
    finally:
        torch.nn.Module.register_parameter = register


def _fill(model: Any, checkpoint: Checkpoint, cast: torch.dtype | None, journal: Journal) -> None:
    """Give every parameter its tensor, in the file's order; then the rest zeros, and the buffers their place."""
    model.tie_weights()
    parameters = dict(model.named_parameters())  # tied ones once
    wanted = {
        stored: name
        for name, parameter in parameters.items()
        if (stored := _stored_name(name, parameter, model.base_model_prefix, checkpoint))
        is not None
    }
    total = len(wanted)
    for done, (stored, tensor) in enumerate(
        load_weights(checkpoint, names=wanted.keys(), cast=cast), start=1
    ):
        _assign(model, wanted[stored], tensor)
        journal.progress(done, total)
    missing = [name for name in parameters if name not in wanted.values()]
    for name in missing:
        _assign(model, name, torch.zeros_like(parameters[name], device="cuda"))
    if missing:
        journal.note(
            f"{len(missing)} of {len(parameters)} parameters are stored under other names than the class gives them "
            f"(first: {missing[0]}); they have their size and are zero, so memory is right and answers are not"
        )
    model.tie_weights()
    for module in model.modules():
        for name, buffer in module.named_buffers(recurse=False):
            setattr(module, name, buffer.to("cuda"))


def _stored_name(name: str, parameter: Tensor, prefix: str, checkpoint: Checkpoint) -> str | None:
    """Checkpoints of a base model lack the head's prefix, and the other way round; old BERTs say gamma and beta."""
    with_prefix = f"{prefix}.{name}"
    for candidate in (name, with_prefix, name.removeprefix(f"{prefix}.")):
        for spelling in (candidate, _old_norm_name(candidate)):
            stored = checkpoint.tensors.get(spelling)
            if stored is not None and stored.shape == tuple(parameter.shape):
                return spelling
    return None


def _old_norm_name(name: str) -> str:
    if "LayerNorm" not in name:
        return name
    return (
        name.removesuffix("weight") + "gamma"
        if name.endswith("weight")
        else name.removesuffix("bias") + "beta"
    )


def _assign(model: Any, name: str, tensor: Tensor) -> None:
    path, _, leaf = name.rpartition(".")
    module = model.get_submodule(path)
    module._parameters[leaf] = torch.nn.Parameter(tensor, requires_grad=tensor.is_floating_point())  # noqa: SLF001 - setattr would copy hooks of meta parameters
