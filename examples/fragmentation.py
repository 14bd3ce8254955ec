"""Fragmentation: long-lived pieces settle inside freed activations, so no freed activation can be used whole again.

    vramdoc diagnose --gpu 2GiB -- python examples/fragmentation.py

Each step needs one activation a little larger than the last and keeps 2 MiB of statistics. The statistics
are carved out of the activation that was just freed, whose segment can then neither serve the next step nor
be given back. Few MiB are live when the device runs full; under expandable_segments:True the work finishes.
"""

import torch

MIB = 1 << 20
STEPS = 8

statistics = []
for step in range(STEPS):
    activation = torch.empty((400 + 16 * step) * MIB, dtype=torch.uint8, device="cuda")
    del activation
    statistics.append(torch.empty(2 * MIB, dtype=torch.uint8, device="cuda"))

print(f"finished {STEPS} steps, {torch.cuda.memory_reserved() // MIB} MiB reserved")
