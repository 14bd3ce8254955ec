"""cublasCreate fails: the cache holds the whole device when the first matrix product asks the driver for a handle.

    vramdoc diagnose --gpu 8GiB -- python examples/cublas_handle.py

Batches grow, so none fits into the block that the last one left, and each takes new memory from the driver. All of
it is free for PyTorch at the end; the driver, which cuBLAS asks, has 4 MiB. With a memory fraction the cache
is given back before it can take everything.
"""

import torch

MIB = 1 << 20

driver_free, _total = torch.cuda.mem_get_info()
for share in (0.1, 0.2, 0.3):
    batch = torch.empty(int(driver_free * share), dtype=torch.uint8, device="cuda")
    del batch

driver_free, _total = torch.cuda.mem_get_info()
batch = torch.empty(driver_free - 4 * MIB, dtype=torch.uint8, device="cuda")
del batch

left = torch.ones(64, 64, device="cuda")
print((left @ left).shape)
