"""A few training steps that keep one loss too many, up to an out-of-memory error; prints what torch itself counted."""

import json
import os
import sys

import torch

folder = sys.argv[1]
torch.cuda.memory._record_memory_history(stacks="python")


def at_failure(device, requested, device_total, device_free):
    torch.cuda.memory._dump_snapshot(f"{folder}/oom.pickle")
    kept["stats"] = torch.cuda.memory_stats()


kept = {}
torch._C._cuda_attach_out_of_memory_observer(at_failure)
model = torch.nn.Sequential(*(torch.nn.Linear(1024, 1024) for _ in range(4))).cuda()
optimizer = torch.optim.AdamW(model.parameters())
history = []


def step():
    out = model(torch.ones(2048, 1024, device="cuda"))
    loss = out.square().mean()
    loss.backward()
    optimizer.step()
    optimizer.zero_grad()
    history.append(out)  # the leak


message = ""
try:
    for _ in range(1000):
        step()
except torch.OutOfMemoryError as error:
    message = str(error)
print(json.dumps({"message": message, "stats": kept["stats"], "steps": len(history)}), flush=True)
# One exit in ten aborts otherwise ("terminate called without an active exception"): the autograd thread, in which the request failed,
# asks for the interpreter's lock while the interpreter is going down (docs/how-it-works.md).
os._exit(0)
