"""What recording costs over torch's own history: the same loops in the same run, alternating, each in a process of its own.

    python benchmarks/recording.py [--gpu rtx4090 | --gpu cuda:0] [--rounds 5]

Three ways: nothing recorded, torch's ``_record_memory_history`` alone, ``vramdoc record`` (history, guards, watch). CPU seconds of the
loop only, so that start-up and the last snapshot are not in it; the median over the rounds.
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import subprocess
import sys
import tempfile
from pathlib import Path

from vramdoc.record.command import record_command
from vramdoc.record.device_choice import choose_device

PROGRAM = """
import os, sys, time
import torch
way, loop = sys.argv[1:]
torch.cuda.init()
if way == "history":
    torch.cuda.memory._record_memory_history(max_entries=1_000_000, stacks="python")

def allocate():
    # Nothing but the allocator: the worst case for whoever watches it.
    kept = [None] * 64
    for step in range(100_000):
        kept[step * 7 % 64] = torch.empty(1000 + step % 4096 * 512, dtype=torch.uint8, device="cuda")

def decode():
    # Per step and layer what a decoder does: casts around a norm, products, a write into the cache.
    layers, width = 16, 256
    x = torch.zeros(1, 1, width, dtype=torch.bfloat16, device="cuda")
    weight = torch.zeros(width, width, dtype=torch.bfloat16, device="cuda")
    caches = [torch.zeros(1, 512, width, dtype=torch.bfloat16, device="cuda") for _ in range(layers)]
    with torch.inference_mode():
        for step in range(300):
            for cache in caches:
                y = x.to(torch.float32)
                y = y * torch.rsqrt(y.pow(2).mean(-1, keepdim=True) + 1e-6)
                k = y.to(torch.bfloat16) @ weight
                cache[:, step:step + 1] = k
                x = x + torch.softmax(k @ cache[:, :step + 1].transpose(1, 2), -1) @ cache[:, :step + 1]

run = {"allocate": allocate, "decode": decode}[loop]
started = time.process_time()
run()
print(time.process_time() - started)
"""


def seconds(way: str, loop: str, gpu: str, folder: Path) -> float:
    """CPU seconds of one loop in one process."""
    program = folder / "loop.py"
    program.write_text(PROGRAM, encoding="utf-8")
    argv = [sys.executable, str(program), way, loop]
    if way != "vramdoc":
        environment = choose_device(gpu).environment(os.environ)
        done = subprocess.run(argv, env=environment, capture_output=True, text=True, check=True)
        return float(done.stdout)
    ended = record_command(argv, gpu=gpu, root=folder / ".vramdoc", capture_output=True)
    assert ended.recording is not None
    assert ended.code == 0
    assert ended.recording.output_path is not None
    return float(ended.recording.output_path.read_text(encoding="utf-8"))


def main() -> None:
    """Print the medians, and the ratio that the goal is about, as JSON."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--gpu", default="rtx4090")
    parser.add_argument("--rounds", type=int, default=5)
    options = parser.parse_args()
    results = {}
    for loop in ("allocate", "decode"):
        taken: dict[str, list[float]] = {"bare": [], "history": [], "vramdoc": []}
        with tempfile.TemporaryDirectory() as folder:
            for _ in range(options.rounds):
                for way, times in taken.items():
                    times.append(seconds(way, loop, options.gpu, Path(folder)))
        medians = {way: statistics.median(times) for way, times in taken.items()}
        fastest = {way: min(times) for way, times in taken.items()}
        results[loop] = {
            **{f"{way}_s": round(value, 3) for way, value in medians.items()},
            "over_history": round(medians["vramdoc"] / medians["history"], 4),
            "over_history_fastest": round(fastest["vramdoc"] / fastest["history"], 4),
            "goal": 1.03,
        }
    print(json.dumps(results, indent=2))


if __name__ == "__main__":
    main()
