"""Streams, events, captured graphs, memory pools, and what a capture forbids."""

import json

import torch

from vramdoc.virtual_gpu.inside import prepare_torch

MIB = 1 << 20
prepare_torch(torch)
said = {}


def segments():
    return [
        {"pool": list(s["segment_pool_id"]), "stream": s["stream"], "size": s["total_size"]}
        for s in torch.cuda.memory._snapshot()["segments"]
    ]


x = torch.zeros(1 << 20, device="cuda")
w = torch.randn(512, 512, device="cuda")
graph = torch.cuda.CUDAGraph()
side = torch.cuda.Stream()
with torch.cuda.graph(graph):
    capturing = torch.cuda.current_stream()
    said["capturing"] = torch.cuda.is_current_stream_capturing()
    y = x + 1
    z = (w @ w).relu()
    side.wait_stream(capturing)
    with torch.cuda.stream(side):
        said["side_capturing"] = torch.cuda.is_current_stream_capturing()
        on_side = torch.empty(3 * MIB, dtype=torch.uint8, device="cuda")
    capturing.wait_stream(side)
said["after_capture"] = torch.cuda.is_current_stream_capturing()
graph.replay()
said["segments"] = segments()
said["side_stream"] = side.cuda_stream
try:
    torch.empty(64 << 30, dtype=torch.uint8, device="cuda")
except torch.OutOfMemoryError as error:
    said["oom"] = str(error)

pool = torch.cuda.MemPool()
with torch.cuda.use_mem_pool(pool):
    pooled = torch.empty(50 * MIB, dtype=torch.uint8, device="cuda")
said["mem_pool"] = [s for s in segments() if s["size"] == 50 * MIB]
said["mem_pool_id"] = list(pool.id)

other = torch.cuda.Stream(priority=-1)
with torch.cuda.stream(other):
    used_elsewhere = torch.empty(30 * MIB, dtype=torch.uint8, device="cuda")
used_elsewhere.record_stream(torch.cuda.current_stream())
del used_elsewhere
start, end = torch.cuda.Event(enable_timing=True), torch.cuda.Event(enable_timing=True)
start.record()
x.add_(1)
end.record()
end.synchronize()
said["event_done"] = start.query()
said["elapsed_ms"] = start.elapsed_time(end)
said["priority"] = other.priority
# Last: torch leaves its own stream context open when ending a spoilt capture raises.
broken = torch.cuda.CUDAGraph()
try:
    with torch.cuda.graph(broken):
        (x + 1).sum().item()
except RuntimeError as error:
    said["sync_in_capture"] = str(error)
said["works_again"] = float((x + 1).sum().item())
print(json.dumps(said))
