"""An allocator setting made while the program runs takes the place of the one in the environment."""

import torch

weights = torch.zeros(64 << 20, dtype=torch.uint8, device="cuda")
torch._C._accelerator_setAllocatorSettings("max_split_size_mb:128")
more = torch.zeros(64 << 20, dtype=torch.uint8, device="cuda")
