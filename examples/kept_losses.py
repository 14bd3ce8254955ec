"""Graph history: an evaluation keeps its losses for a plot, and each keeps everything that its pass saved for a backward pass.

    vramdoc diagnose --gpu 2GiB -- python examples/kept_losses.py

No backward pass comes, so nothing ever frees the graphs. The report names the list, the function that fills it and the line, and
prescribes ``loss.item()``.
"""

import torch

model = torch.nn.Sequential(*(torch.nn.Linear(1024, 1024) for _ in range(4))).cuda()


def evaluate(batches):
    """Mean losses of some batches."""
    losses = []
    for _ in range(batches):
        batch = torch.ones(2560, 1024, device="cuda")
        losses.append(model(batch).square().mean())
    return losses


evaluate(200)
