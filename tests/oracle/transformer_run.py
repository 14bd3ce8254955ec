"""A transformer at work on the virtual GPU: prefill, decode with a dynamic cache, training steps. Forks once for each config.

One JSON line in: the config string and where to dump the snapshot (or null). One JSON line out: the statistics. As in
``allocator_server``, nothing of vramdoc is imported.
"""

from __future__ import annotations

import json
import os
import sys

import torch
from transformers import DynamicCache, LlamaConfig, LlamaForCausalLM

torch.backends.cudnn.enabled = False


@torch.no_grad()
def converse(model: LlamaForCausalLM, prompt: int, steps: int) -> None:
    cache = DynamicCache()
    ids = torch.zeros((2, prompt), dtype=torch.long, device="cuda")
    for _ in range(steps):
        logits = model(ids, past_key_values=cache, use_cache=True).logits
        ids = logits[:, -1:].argmax(-1)


def train(model: LlamaForCausalLM, lengths: tuple[int, ...]) -> None:
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-4)
    for length in lengths:
        ids = torch.zeros((2, length), dtype=torch.long, device="cuda")
        model(ids, labels=ids).loss.backward()
        optimizer.step()
        optimizer.zero_grad()
        torch.cuda.empty_cache()


def work() -> None:
    torch.manual_seed(0)
    shape = LlamaConfig(
        hidden_size=768,
        intermediate_size=2048,
        num_hidden_layers=6,
        num_attention_heads=12,
        num_key_value_heads=4,
        vocab_size=16000,
    )
    with torch.device("cuda"):
        model = LlamaForCausalLM(shape).to(torch.bfloat16)
    converse(model, prompt=300, steps=12)
    converse(model, prompt=517, steps=8)
    train(model, (128, 333, 256))


def answer(config: str, dump: str | None) -> dict[str, int]:
    os.environ["PYTORCH_CUDA_ALLOC_CONF"] = config
    torch.cuda.init()
    if dump:
        torch.cuda.memory._record_memory_history(max_entries=1_000_000, context=None)
    work()
    if dump:
        torch.cuda.memory._dump_snapshot(dump)
    return dict(torch.cuda.memory_stats())


def main() -> None:
    out = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)
    for line in sys.stdin:
        read, write = os.pipe()
        if os.fork() == 0:
            os.close(read)
            try:
                reply: object = answer(*json.loads(line))
            except BaseException as error:  # noqa: BLE001 - the parent reports it
                reply = {"broken": f"{type(error).__name__}: {error}"}
            with os.fdopen(write, "w") as pipe:
                json.dump(reply, pipe)
            os._exit(0)
        os.close(write)
        with os.fdopen(read) as pipe:
            text = pipe.read()
        os.wait()
        out.write((text or '{"broken": "the process died"}') + "\n")
        out.flush()


if __name__ == "__main__":
    main()
