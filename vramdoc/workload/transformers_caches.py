"""transformers' own caches by the names of ``--cache``; a strategy that is missing here has no class like it there.

What a class cannot do (a backend that is not installed, layers that are not full attention) is found by opening an empty
one, which costs no device memory. It knows no model.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from importlib.util import find_spec
from typing import Any

from torch import Tensor

from vramdoc.checkpoint.kv import KvLayout

GROUPWISE = {"backend": "hqq", "axis_key": 1, "axis_value": 1}
"""HQQ is the one backend of transformers 5.24 with 8 bits and with 4, and is plain torch. Quanto has no 8, and on CUDA builds its
kernels with nvcc at the first step. Axis 1 is what transformers' documentation advises for HQQ; both axes hold the same bytes."""

OPENERS: Mapping[str, Callable[[Any, Any, int], Any]] = {
    "dynamic": lambda hf, config, _capacity: hf.DynamicCache(config=config),
    "static": lambda hf, config, capacity: hf.StaticCache(config=config, max_cache_len=capacity),
    "offloaded": lambda hf, config, _capacity: hf.DynamicCache(config=config, offloading=True),
    "int8": lambda hf, config, _capacity: hf.QuantizedCache(config=config, nbits=8, **GROUPWISE),
    "int4": lambda hf, config, _capacity: hf.QuantizedCache(config=config, nbits=4, **GROUPWISE),
    "fp8": lambda hf, config, _capacity: hf.QuantizedCache(config=config, backend="fp8"),
}
"""Strategy to what opens an empty cache: (the transformers module, the model's config, tokens) -> the cache."""

NEEDS: Mapping[str, tuple[str, str]] = {
    "int8": ("hqq", "vramdoc[kv-quant]"),
    "int4": ("hqq", "vramdoc[kv-quant]"),
}
"""Strategy to the module that its backend imports, and the extra that installs it."""


PACKED: Mapping[str, int] = {"int8": 64, "int4": 128}
"""Elements that HQQ packs together: a group of 64, and for 4 bits two of them (``BitPack.pack_4bit_u8`` of 0.2.8 raises else)."""


def why_not(strategy: str, config: Any, layout: KvLayout | None) -> str | None:
    """Why transformers cannot keep this model's state by ``strategy``, in one line; None if it can."""
    import transformers

    if strategy not in OPENERS:
        return f"transformers has no cache like {strategy!r}"
    module, extra = NEEDS.get(strategy, ("", ""))
    if module and find_spec(module) is None:
        return f"transformers' {strategy} cache needs {module} (pip install '{extra}')"
    together = PACKED.get(strategy, 1)
    for width in (
        w for layer in (layout.layers if layout else ()) for w in (layer.key, layer.value)
    ):
        if width % together:
            return f"{module} packs {together} elements for {strategy}, and a layer keeps {width} a token"
    try:
        OPENERS[strategy](transformers, config, 1)
    except Exception as error:  # noqa: BLE001 - whatever it is, this release has no such cache for this model
        first = (str(error).strip().splitlines() or [type(error).__name__])[0][:200]
        return f"transformers' {strategy} cache refuses it ({first})"
    return None


def opener(strategy: str, config: Any, capacity: int) -> Callable[[], Any]:
    """What opens the caches of conversations of at most ``capacity`` tokens; ``why_not`` has been asked."""
    import transformers

    return lambda: OPENERS[strategy](transformers, config, capacity)


def held_bytes(cache: Any) -> int:
    """Device bytes of the storages behind a cache's tensors: after a long prompt a sliding layer holds all of it."""
    storages = {
        tensor.untyped_storage().data_ptr(): tensor.untyped_storage().nbytes()
        for layer in cache.layers
        for tensor in tensors_in(vars(layer))
        if tensor.is_cuda
    }
    return sum(storages.values())


def tensors_in(value: object) -> Iterator[Tensor]:
    """Every tensor in nested mappings and sequences: quantised layers keep theirs in tuples and dicts."""
    if isinstance(value, Tensor):
        yield value
    elif isinstance(value, Mapping):
        for item in value.values():
            yield from tensors_in(item)
    elif isinstance(value, (list, tuple)):
        for item in value:
            yield from tensors_in(item)
