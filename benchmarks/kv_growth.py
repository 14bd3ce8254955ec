"""How a KV cache grows under PyTorch's allocator: reserved over live bytes, by strategy and config, token by token.

    python benchmarks/kv_growth.py [--shape llama-3-8b] [--context 8192] [--gpu rtx4090]

One conversation of a Llama-3-8B-shaped model starts with a short prompt and is decoded one token at a time on the virtual
GPU. At the marks the script prints what is live in the cache and what the allocator has reserved for it: everything
above the level after loading, workspaces and activations included. docs/kv-cache.md shows the table.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import tempfile
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

STRATEGIES = ("dynamic", "chunked", "static")
CONFIGS = ("", "expandable_segments:True")
MARKS = (512, 513, 1024, 2048, 4096, 5120, 5121, 6144, 7168, 8192)
PROMPT = 64


def inside(path: str, strategy: str, context: int) -> None:
    """In the child: decode and print one line a mark."""
    import torch

    from vramdoc.checkpoint import DecoderShape, infer_shape, read_checkpoint
    from vramdoc.virtual_gpu.inside import prepare_torch
    from vramdoc.workload.journal import SilentJournal
    from vramdoc.workload.models import PlainModel
    from vramdoc.workload.spec import WorkloadSpec

    prepare_torch(torch)
    checkpoint = read_checkpoint(path)
    shape = infer_shape(checkpoint)
    assert isinstance(shape, DecoderShape)
    with torch.inference_mode():
        # a pool of their own: what loading left over would serve the cache's first megabytes, and blur the ratio
        with torch.cuda.use_mem_pool(torch.cuda.MemPool()):
            model = PlainModel(shape, checkpoint, WorkloadSpec(target=path), SilentJournal())
        cache = model.caches(strategy, capacity=context, sessions=1)()
        loaded = torch.cuda.memory_reserved()
        ids = torch.zeros((1, PROMPT), dtype=torch.long, device="cuda")
        for length in range(PROMPT, context + 1):
            ids = model.step(ids, cache)[:, -1].float().argmax(-1, keepdim=True)
            if length in MARKS:
                stats = torch.cuda.memory_stats()
                print(json.dumps({
                    "tokens": length, "live": cache.held_bytes(), "reserved": stats["reserved_bytes.all.current"] - loaded,
                    "peak": stats["reserved_bytes.all.peak"] - loaded, "driver_calls": stats["num_device_alloc"],
                }), flush=True)  # fmt: skip


def measure(path: Path, strategy: str, config: str, context: int, gpu: str) -> list[dict[str, int]]:
    """Start the child on the virtual GPU and collect its lines."""
    from vramdoc.record.device_choice import choose_device
    from vramdoc.record.environment import with_alloc_conf

    environment = with_alloc_conf(choose_device(gpu, 0).environment(os.environ), config)
    command = [sys.executable, __file__, "--inside", str(path), strategy, str(context)]
    done = subprocess.run(command, env=environment, stdout=subprocess.PIPE, text=True, check=True)
    return [json.loads(line) for line in done.stdout.splitlines() if line.startswith("{")]


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--shape", default="llama-3-8b")
    parser.add_argument("--context", type=int, default=8192)
    parser.add_argument("--gpu", default="rtx4090")
    arguments = parser.parse_args()

    from examples.make_model import write

    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "model.safetensors"
        write(path, arguments.shape, "BF16")
        for config in CONFIGS:
            print(f"\n{config or 'default config'}\n")
            columns = {
                s: measure(path, s, config, arguments.context, arguments.gpu) for s in STRATEGIES
            }
            print(
                "| Tokens | Live MiB | "
                + " | ".join(f"{s} MiB | x live" for s in STRATEGIES)
                + " |"
            )
            print("|--:|--:|" + "--:|--:|" * len(STRATEGIES))
            for rows in zip(*columns.values(), strict=True):
                live = rows[0]["live"]
                cells = (f"{row['reserved'] >> 20} | {row['reserved'] / live:.2f}" for row in rows)
                print(f"| {rows[0]['tokens']} | {live >> 20} | " + " | ".join(cells) + " |")
            calls = ", ".join(f"{s} {rows[-1]['driver_calls']}" for s, rows in columns.items())
            print(
                f"\ncudaMalloc or mapping calls to the end, weights included: {calls}", flush=True
            )


if __name__ == "__main__":
    if sys.argv[1:2] == ["--inside"]:
        inside(sys.argv[2], sys.argv[3], int(sys.argv[4]))
    else:
        main()
