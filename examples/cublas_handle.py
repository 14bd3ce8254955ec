"""cublasCreate fails: the cache holds the whole device when the first matrix product asks the driver for a handle.

    vramdoc diagnose --gpu 2GiB -- python examples/cublas_handle.py

The tensors that filled the cache are freed, so PyTorch has room; the driver, which cuBLAS asks, has none.
"""

import torch

MIB = 1 << 20

driver_free, _total = torch.cuda.mem_get_info()
batch = torch.empty(driver_free - 4 * MIB, dtype=torch.uint8, device="cuda")
del batch  # free for PyTorch, still taken for the driver

left = torch.ones(64, 64, device="cuda")
print((left @ left).shape)
