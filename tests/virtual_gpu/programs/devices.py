"""Two devices, memory held by others, and copies between devices."""

import json

import pynvml
import torch

from vramdoc.virtual_gpu.inside import prepare_torch

MIB = 1 << 20
prepare_torch(torch)
said = {"count": torch.cuda.device_count()}


def used(device):
    free, total = torch.cuda.mem_get_info(device)
    return total - free


first = torch.zeros(100 * MIB, dtype=torch.uint8, device="cuda:0")
said["used_0"] = used(0)
said["used_1"] = used(1)
second = first.to("cuda:1")
said["device_of_copy"] = second.device.index
said["used_1_after"] = used(1)
said["used_0_after"] = used(0)
said["allocated"] = [torch.cuda.memory_allocated(i) for i in (0, 1)]
said["peer"] = torch.cuda.can_device_access_peer(0, 1)
said["streams"] = [torch.cuda.Stream(device=i).device.index for i in (0, 1)]
pynvml.nvmlInit()
handles = [pynvml.nvmlDeviceGetHandleByIndex(i) for i in range(pynvml.nvmlDeviceGetCount())]
said["nvml_used"] = [pynvml.nvmlDeviceGetMemoryInfo(handle).used for handle in handles]
said["processes"] = [
    [process.usedGpuMemory for process in pynvml.nvmlDeviceGetComputeRunningProcesses(handle)]
    for handle in handles
]
try:
    torch.zeros(1, device=f"cuda:{torch.cuda.device_count()}")
except RuntimeError as error:
    said["no_such_device"] = str(error)
print(json.dumps(said))
