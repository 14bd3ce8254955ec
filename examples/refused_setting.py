"""Refused setting: an equals sign where the allocator wants a colon. It fails before any memory is asked for.

vramdoc diagnose --gpu 2GiB -- python examples/refused_setting.py
"""

import os

os.environ["PYTORCH_CUDA_ALLOC_CONF"] = "max_split_size_mb=128"

import torch

print(torch.zeros(1, device="cuda"))
