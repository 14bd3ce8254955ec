"""Graph private pools: each captured CUDA graph keeps a pool of its own, and nothing else may use what is idle there.

    vramdoc diagnose --gpu 2GiB -- python examples/graph_pools.py

Graphs that are captured in one shared pool, the largest batch first, use the same memory one after the other.
"""

import torch

model = torch.nn.Sequential(*(torch.nn.Linear(1024, 1024) for _layer in range(4))).cuda()
graphs = []
with torch.no_grad():
    for batch in (32768, 28672, 24576, 20480, 16384, 12288):
        static_input = torch.zeros(batch, 1024, device="cuda")
        graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(graph):
            output = model(static_input)
        graphs.append((graph, output))

prompt = torch.empty(900 << 20, dtype=torch.uint8, device="cuda")
print(f"{len(graphs)} graphs")
