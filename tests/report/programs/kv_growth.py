"""Every turn of a conversation adds keys and values, until a turn finds no room."""

import time

import torch

import vramdoc

CLOCKS = 0.002
"""Seconds by which the trace's clock and the marks' may differ at most, so that both give one order."""

weights = torch.zeros(64 << 20, dtype=torch.uint8, device="cuda")
cache = []
for _turn in range(64):
    time.sleep(CLOCKS)
    vramdoc.mark("turn", kv_bytes=sum(part.nbytes for part in cache))
    time.sleep(CLOCKS)
    cache.append(torch.zeros(2, 8, 8192, 128, dtype=torch.float16, device="cuda"))
