"""Ragged batch: samples of one batch differ in shape. The message speaks of storage; nothing is wrong with memory.

    vramdoc diagnose --gpu 2GiB -- python examples/ragged_batch.py

A worker puts the batch together in shared memory of fixed size. With ``num_workers=0`` the message names the shapes.
"""

import torch
from torch.utils.data import DataLoader


class Sentences(torch.utils.data.Dataset):
    """Token ids of sentences, each as long as it is."""

    def __len__(self) -> int:
        return 8

    def __getitem__(self, index: int) -> torch.Tensor:
        return torch.arange(3 + index)


if __name__ == "__main__":
    for batch in DataLoader(Sentences(), batch_size=4, num_workers=1):
        print(batch.cuda().shape)
