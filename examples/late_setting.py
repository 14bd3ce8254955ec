"""Setting without effect: the allocator reads its variable once, and this program sets it after that.

    vramdoc diagnose --gpu 2GiB -- python examples/late_setting.py

The line belongs above ``import torch``, or into the environment that starts the program.
"""

import os

import torch

MIB = 1 << 20

torch.zeros(1, device="cuda")
os.environ["PYTORCH_CUDA_ALLOC_CONF"] = "expandable_segments:True"

tensors = [torch.empty(100 * MIB, dtype=torch.uint8, device="cuda") for _layer in range(8)]
print(f"{len(tensors)} tensors")
