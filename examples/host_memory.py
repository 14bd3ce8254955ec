"""Host memory: the computer's own memory is too small, whatever the GPU has.

vramdoc diagnose --gpu 2GiB -- python examples/host_memory.py
"""

import torch

torch.zeros(1, device="cuda")
optimizer_state = torch.empty(1 << 48, dtype=torch.uint8)  # offloaded: 256 TiB
print(optimizer_state.shape)
