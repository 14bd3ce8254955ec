"""Fragmentation: long-lived pieces settle between short-lived ones, so most of the memory is idle and none of it usable.

    vramdoc diagnose --gpu 2GiB -- python examples/fragmentation.py

A warm-up leaves one large free block. The layers then carve it up: each takes scratch memory and, right behind it,
a cache that stays. When the scratch memory is freed, more than a gigabyte is idle, in holes of 90 MiB; the
next request of 480 MiB fits into none of them, and no segment can be given back because each hole has a live
neighbour. Under expandable_segments:True the pages of the holes are unmapped and used elsewhere.
"""

import torch

MIB = 1 << 20
LAYERS = 12
OPTIONS = {"dtype": torch.uint8, "device": "cuda"}

warm_up = torch.empty(1200 * MIB, **OPTIONS)
del warm_up

scratch, caches = [], []
for _layer in range(LAYERS):
    scratch.append(torch.empty(90 * MIB, **OPTIONS))
    caches.append(torch.empty(8 * MIB, **OPTIONS))
scratch.clear()

logits = torch.empty(480 * MIB, **OPTIONS)
print(f"finished, {torch.cuda.memory_reserved() // MIB} MiB reserved")
