"""KV growth: the cache of a long conversation is concatenated token by token until the device is full.

    vramdoc diagnose --gpu 2GiB -- python examples/growing_cache.py

Keys and values of every layer are copied into larger tensors at each step. A cache of fixed length is allocated once.
"""

import torch

LAYERS, HEADS, HEAD_SIZE, TOKENS = 8, 8, 128, 64
OPTIONS = {"dtype": torch.float16, "device": "cuda"}


class GrowingCache:
    """Keys and values by layer."""

    def __init__(self) -> None:
        empty = torch.empty(1, HEADS, 0, HEAD_SIZE, **OPTIONS)
        self.keys, self.values = [empty] * LAYERS, [empty] * LAYERS

    def update(self, layer: int, keys: torch.Tensor, values: torch.Tensor) -> None:
        """Append the keys and values of new tokens."""
        self.keys[layer] = torch.cat([self.keys[layer], keys], dim=2)
        self.values[layer] = torch.cat([self.values[layer], values], dim=2)


cache = GrowingCache()
for _turn in range(2000):
    for layer in range(LAYERS):
        new = torch.empty(1, HEADS, TOKENS, HEAD_SIZE, **OPTIONS)
        cache.update(layer, new, new)
