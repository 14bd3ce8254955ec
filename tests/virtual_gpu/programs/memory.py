"""Allocations, the accounts they change, and the ways in which memory runs out."""

import ctypes
import json

import numpy as np
import pynvml
import torch

from vramdoc.virtual_gpu.inside import prepare_torch

MIB = 1 << 20
said = {"notes": prepare_torch(torch), "available": torch.cuda.is_available()}


def used():
    free, total = torch.cuda.mem_get_info()
    return total - free


properties = torch.cuda.get_device_properties(0)
said["name"], said["total"] = properties.name, properties.total_memory
said["capability"] = list(torch.cuda.get_device_capability())
said["multiprocessors"] = properties.multi_processor_count
said["context"] = used()
small = torch.zeros(1000, device="cuda")
said["after_small"] = used()
big = torch.zeros(30 * MIB, dtype=torch.uint8, device="cuda")
said["after_big"] = used()
said["addresses"] = [s["address"] for s in torch.cuda.memory._snapshot()["segments"]]
said["reserved"] = torch.cuda.memory_reserved()
said["sum"] = float(big.sum())
del big
torch.cuda.empty_cache()
said["after_empty_cache"] = used()

host = torch.empty(5000)
pinned = host.pin_memory()
said["pinned"] = [host.is_pinned(), pinned.is_pinned(), pinned[7:].is_pinned()]
said["after_pinned"] = used()
said["round_trip"] = float(pinned.fill_(3).to("cuda", non_blocking=True).cpu().sum())

pynvml.nvmlInit()
handle = pynvml.nvmlDeviceGetHandleByIndex(0)
memory = pynvml.nvmlDeviceGetMemoryInfo(handle)
said["nvml"] = {
    "count": pynvml.nvmlDeviceGetCount(),
    "name": pynvml.nvmlDeviceGetName(handle),
    "uuid": pynvml.nvmlDeviceGetUUID(handle),
    "used": memory.used,
    "total": memory.total,
    "cuda_used": used(),
    "torch_device_count": torch.cuda.device_count(),
    "torch_used": torch.cuda.device_memory_used(),
    "uuid_of_torch": f"GPU-{getattr(properties, 'uuid', '')}",
    "processes": [p.usedGpuMemory for p in pynvml.nvmlDeviceGetComputeRunningProcesses(handle)],
}
try:
    pynvml.nvmlDeviceGetTemperature(handle, 0)
except pynvml.NVMLError as error:
    said["temperature"] = str(error)

try:
    torch.empty(64 << 30, dtype=torch.uint8, device="cuda")
except torch.OutOfMemoryError as error:
    said["oom"] = str(error)
    free, _ = torch.cuda.mem_get_info()
    said["oom_free"] = free

free, _ = torch.cuda.mem_get_info()
filler = torch.empty(free - 4 * MIB, dtype=torch.uint8, device="cuda")
said["free_before_cublas"] = torch.cuda.mem_get_info()[0]
matrix = torch.randn(64, 64, device="cuda")
try:
    matrix @ matrix
except RuntimeError as error:
    said["cublas"] = str(error)
del filler
torch.cuda.empty_cache()
before = used()
matrix @ matrix
said["cublas_takes"] = (
    used()
    - before
    - sum(
        s["total_size"]
        for s in torch.cuda.memory._snapshot()["segments"]
        if s["total_size"] > 2 * MIB
    )
)

try:
    torch.from_numpy(np.zeros(4)).resize_(100)
except RuntimeError as error:
    said["resize"] = str(error)
for _ in range(2):
    try:
        torch.linalg.svd(torch.randn(600, 600, device="cuda"))
    except RuntimeError as error:
        said["svd"] = str(error)
    try:
        torch.fft.fft(matrix)
    except RuntimeError as error:
        said["fft"] = str(error)
said["jiterated"] = float(torch.special.i0e(torch.ones(3, device="cuda")).sum())
said["triton"] = ctypes.CDLL("libcuda.so.1").cuModuleLoad(None, b"kernel.cubin")
print(json.dumps(said))
