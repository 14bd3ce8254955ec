"""Memory outside PyTorch: another library of the same process holds most of the device, where no allocator setting reaches.

vramdoc diagnose --gpu 4GiB -- python examples/outside_pytorch.py
"""

import ctypes

import torch

GIB = 1 << 30

torch.zeros(1, device="cuda")
runtime = ctypes.CDLL(
    None
)  # CUDA's runtime, which torch has loaded; stands for a decoder or another framework
address = ctypes.c_void_p()
if runtime.cudaMalloc(ctypes.byref(address), ctypes.c_size_t(2 * GIB)):
    raise SystemExit("the other library found no memory itself")

tensors = [torch.empty(GIB // 2, dtype=torch.uint8, device="cuda") for _layer in range(6)]
print(len(tensors))
