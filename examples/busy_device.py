"""Foreign process: someone else holds the device. ``--foreign`` stands in for the neighbour on a virtual GPU.

vramdoc diagnose --gpu 4GiB --foreign 3GiB -- python examples/busy_device.py
"""

import torch

weights = torch.empty(1 << 30, dtype=torch.uint8, device="cuda")
print(weights.shape)
