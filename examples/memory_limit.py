"""Memory limit: half of the device is free, and the process may not have it.

vramdoc diagnose --gpu 4GiB -- python examples/memory_limit.py
"""

import torch

MIB = 1 << 20

torch.cuda.set_per_process_memory_fraction(0.5)
activations = [torch.empty(256 * MIB, dtype=torch.uint8, device="cuda") for _layer in range(12)]
print(len(activations))
