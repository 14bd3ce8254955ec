"""A capture in which memory used on a side stream is freed once that stream has been joined again."""

import json

import torch

from vramdoc.virtual_gpu.inside import prepare_torch

prepare_torch(torch)
x = torch.zeros(1 << 20, device="cuda")
graph, side = torch.cuda.CUDAGraph(), torch.cuda.Stream()
with torch.cuda.graph(graph):
    main = torch.cuda.current_stream()
    for _ in range(4):
        scratch = x + 1
        side.wait_stream(main)
        with torch.cuda.stream(side):
            scratch.mul_(2)
        scratch.record_stream(side)
        main.wait_stream(side)
        del scratch
        x.add_(1)
blocks = [
    block["state"]
    for segment in torch.cuda.memory._snapshot()["segments"]
    if tuple(segment["segment_pool_id"]) != (0, 0)
    for block in segment["blocks"]
]
unjoined = torch.cuda.CUDAGraph()
said = {"waiting": blocks.count("active_pending_free") + blocks.count("active_awaiting_free")}
try:
    with torch.cuda.graph(unjoined):
        side.wait_stream(torch.cuda.current_stream())
        with torch.cuda.stream(side):
            x.add_(1)
except RuntimeError as error:
    said["unjoined"] = str(error)
print(json.dumps(said))
