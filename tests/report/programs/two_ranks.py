"""Two ranks that should hold the same, and do not: rank 1 got the longer sequences.

Each also leaves a block that another stream still uses, and one in a private pool.
"""

import os

import torch

rank = int(os.environ["RANK"])
torch.cuda.set_device(rank)
batches = [torch.zeros((64 + 200 * rank) << 20, dtype=torch.uint8, device="cuda") for _ in range(4)]
shared = torch.zeros(32 << 20, dtype=torch.uint8, device="cuda")

staged = torch.zeros(24 << 20, dtype=torch.uint8, device="cuda")
side = torch.cuda.Stream()
pool = torch.cuda.MemPool()
with torch.cuda.use_mem_pool(pool):
    captured = torch.zeros(16 << 20, dtype=torch.uint8, device="cuda")
with torch.cuda.stream(side):
    staged.add_(1)
    staged.record_stream(side)
del staged
