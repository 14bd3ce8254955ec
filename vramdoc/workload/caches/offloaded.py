"""An offloaded cache: keys and values live in host memory and visit the device one layer at a time.

transformers 5.24's ``Cache(offloading=True)``: the layer is brought back, grown, read, and sent away again. The prefetch
of the next layer on a second stream is left out, so one layer fewer is on the device. On a virtual GPU the host copy is
real memory.
"""

from __future__ import annotations

from collections.abc import Iterator

from torch import Tensor

from vramdoc.workload.caches.growing import Dynamic


class Offloaded:
    """A dynamic layer that is on the device only while it is used."""

    def __init__(self) -> None:
        self._layer = Dynamic()

    def update(self, key: Tensor, value: Tensor, past: int) -> tuple[Tensor, Tensor]:
        """Bring the past back, concatenate, send the result away."""
        layer = self._layer
        if layer.key is not None and layer.value is not None:
            layer.key = layer.key.to(key.device, non_blocking=True)
            layer.value = layer.value.to(value.device, non_blocking=True)
        keys, values = layer.update(key, value, past)
        layer.key, layer.value = (
            keys.to("cpu", non_blocking=True),
            values.to("cpu", non_blocking=True),
        )
        return keys, values

    def key_length(self, past: int, new: int) -> int:
        """All tokens so far."""
        return past + new

    def tensors(self) -> Iterator[Tensor]:
        """Nothing stays on the device."""
        return iter(())

    def close(self) -> None:
        """Nothing is shared."""
