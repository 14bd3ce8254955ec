"""KV caches as code: how the keys and values of a conversation are kept between its steps.

Each strategy is one class with the arithmetic of the implementation that people run (named in its docstring), so that
the allocator sees the same requests. A cache does not know the model; it is told each layer's new keys and values.
"""

from __future__ import annotations

from collections.abc import Callable

from torch import Tensor

from vramdoc.workload.caches.growing import Chunked, Dynamic, Sliding, Static
from vramdoc.workload.caches.layer import LayerCache
from vramdoc.workload.caches.offloaded import Offloaded
from vramdoc.workload.caches.paged import BLOCK, Paged, Pool
from vramdoc.workload.caches.quantised import Fp8, Quantised


class Cache:
    """The caches of all layers of one conversation, and how many tokens they hold."""

    def __init__(self, layers: list[LayerCache]) -> None:
        self.layers = layers
        self.length = 0

    def update(self, layer: int, key: Tensor, value: Tensor) -> tuple[Tensor, Tensor]:
        """Keep a layer's new keys and values; return all that attention has to read."""
        return self.layers[layer].update(key, value, self.length)

    def held_bytes(self) -> int:
        """Bytes of the storages held on the device now; blocks of a pool count as this conversation's part."""
        return sum(tensor.nbytes for layer in self.layers for tensor in layer.tensors())

    def close(self) -> None:
        """The conversation ends."""
        for layer in self.layers:
            layer.close()


class CacheFactory:
    """Opens the caches of up to ``sessions`` conversations of at most ``capacity`` tokens each."""

    def __init__(self, strategy: str, *, layers: int, capacity: int, sessions: int) -> None:
        self._layers = layers
        self._make: Callable[[int], LayerCache]
        if strategy == "paged":
            pools = [Pool(sessions * -(-capacity // BLOCK)) for _ in range(layers)]
            self._make = lambda layer: Paged(pools[layer])
        else:
            make = STRATEGIES[strategy]
            self._make = lambda _layer: make(capacity)

    def open(self) -> Cache:
        """An empty cache."""
        return Cache([self._make(layer) for layer in range(self._layers)])


STRATEGIES: dict[str, Callable[[int], LayerCache]] = {
    "dynamic": lambda _capacity: Dynamic(),
    "static": Static,
    "chunked": lambda _capacity: Chunked(),
    "paged": lambda capacity: Paged(Pool(-(-capacity // BLOCK))),
    "sliding": lambda _capacity: Sliding(),
    "int8": lambda _capacity: Quantised(8),
    "int4": lambda _capacity: Quantised(4),
    "fp8": lambda _capacity: Fp8(),
    "offloaded": lambda _capacity: Offloaded(),
}
"""``--cache`` names to one layer's cache for at most ``capacity`` tokens."""
