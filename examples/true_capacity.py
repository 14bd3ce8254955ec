"""True capacity: every activation is kept, so the device is simply full and no allocator setting can help.

vramdoc diagnose --gpu 2GiB -- python examples/true_capacity.py
"""

import torch

MIB = 1 << 20

activations = [
    torch.empty(200 * MIB, dtype=torch.uint8, device="cuda") for _layer in range(16)
]  # nothing is freed
print(len(activations))
