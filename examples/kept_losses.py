"""Leak: every loss is kept with its graph, and with it the activations of its whole step.

    vramdoc diagnose --gpu 2GiB -- python examples/kept_losses.py

A loss is one number, but its graph holds what the backward pass would need. ``losses.append(loss.item())`` keeps the number alone.
"""

import torch

model = torch.nn.Sequential(torch.nn.Linear(1024, 8192), torch.nn.GELU(), torch.nn.Linear(8192, 1))
model.cuda()
optimizer = torch.optim.SGD(model.parameters(), lr=1e-3)

losses = []
for _step in range(100):
    batch = torch.randn(512, 1024, device="cuda")
    loss = model(batch).square().mean()
    loss.backward(retain_graph=True)
    optimizer.step()
    optimizer.zero_grad()
    losses.append(loss)
