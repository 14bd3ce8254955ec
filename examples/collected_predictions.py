"""Leak: the predictions of every batch are concatenated on the device until the evaluation ends.

    vramdoc diagnose --gpu 2GiB -- python examples/collected_predictions.py

Each ``torch.cat`` needs the old and the new copy at once. A list in host memory, joined once after the loop, needs one batch.
"""

import torch

head = torch.nn.Linear(1024, 32000, device="cuda")


@torch.no_grad()
def evaluate(batches: int) -> torch.Tensor:
    """Collect the logits of all batches, the way many evaluation loops do."""
    predictions = None
    for _batch in range(batches):
        logits = head(torch.zeros(256, 1024, device="cuda"))
        predictions = logits if predictions is None else torch.cat([predictions, logits])
    return predictions


evaluate(batches=200)
