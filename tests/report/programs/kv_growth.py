"""Every turn of a conversation adds keys and values, until a turn finds no room."""

import torch

import vramdoc

weights = torch.zeros(64 << 20, dtype=torch.uint8, device="cuda")
cache = []
for _turn in range(64):
    vramdoc.mark("turn", kv_bytes=sum(part.nbytes for part in cache))
    cache.append(torch.zeros(2, 8, 8192, 128, dtype=torch.float16, device="cuda"))
