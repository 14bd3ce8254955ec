"""Masked device assert: ids beyond the embedding. On a GPU it ends in a cuBLAS error that speaks of memory.

    python examples/ids_above_vocabulary.py 2> crash.log      # on a real GPU
    vramdoc diagnose crash.log examples/ids_above_vocabulary.py

The virtual GPU computes nothing, so the assert needs a real one; the script beside the text is enough to find the line.
"""

import torch
from transformers import GPT2LMHeadModel

model = GPT2LMHeadModel.from_pretrained("gpt2").cuda()
ids = torch.randint(0, 100_000, (1, 64), device="cuda")
print(model(ids).logits.shape)
