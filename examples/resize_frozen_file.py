"""The resize error: a tensor that lives in a safetensors file is grown in place.

    vramdoc diagnose --gpu 2GiB -- python examples/resize_frozen_file.py

PyTorch does not own the mapped file's bytes, so it refuses; a clone is its own and can grow.
"""

import tempfile
from pathlib import Path

import torch
from safetensors.torch import load_file, save_file

with tempfile.TemporaryDirectory() as folder:
    path = Path(folder) / "prompt-cache.safetensors"
    save_file({"keys": torch.zeros(1, 8, 16, 64)}, path)

    weights = torch.zeros(1024, 1024, device="cuda")
    keys = load_file(path)["keys"]
    keys.resize_(1, 8, 17, 64)  # one more token
    print(keys.to("cuda").shape, weights.shape)
