"""The border of five shapes on two virtual GPUs: computed from three sessions, then run on both of its sides.

    python benchmarks/capacity_borders.py [--context 8192]

Mixtral and DeepSeek-V2-Lite are cut to the layers that leave room for sessions. docs/kv-cache.md shows the table.
"""

from __future__ import annotations

import argparse
import json
import sys
import tempfile
import time
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
sys.path.insert(0, str(ROOT))

CASES = {
    "llama-3-8b": (None, None), "qwen2.5-7b": (None, None), "mistral-7b": (None, None), "mixtral-8x7b": (6, 20),
    "deepseek-v2-lite": (10, 27),
}  # fmt: skip
"""Shape to the layers kept on each GPU."""
GPUS = ("rtx4090", "h100")


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--context", type=int, default=8192)
    parser.add_argument("--shapes", default=",".join(CASES), help="some of them, by commas")
    parser.add_argument("--gpus", default=",".join(GPUS))
    arguments = parser.parse_args()
    context, shapes, gpus = (
        arguments.context,
        arguments.shapes.split(","),
        arguments.gpus.split(","),
    )

    from examples.make_model import configured, write
    from vramdoc.capacity.plan import plan_capacity
    from vramdoc.capacity.request import CapacityRequest, runner
    from vramdoc.checkpoint import read_checkpoint

    print(
        "| Shape | GPU | KV a token | Computed | Ran through | Ended out of memory | Reserved/active at the border |"
    )
    print("|:--|:--|--:|--:|--:|--:|--:|")
    chosen = [
        (shape, gpu, layers)
        for shape in shapes
        for gpu, layers in zip(GPUS, CASES[shape], strict=True)
        if gpu in gpus
    ]
    for shape, gpu, layers in chosen:
        with tempfile.TemporaryDirectory() as folder:
            model = Path(folder) / shape
            model.mkdir()
            write(model / "model.safetensors", shape, "BF16", layers)
            (model / "config.json").write_text(json.dumps(configured(shape, layers)))
            request = CapacityRequest(
                target=str(model), contexts=(context,), sessions=(1,), alternatives=False
            )
            started = time.time()
            plan = plan_capacity(
                request, read_checkpoint(model), runner(gpu, Path(folder) / "recordings")
            )
        border = plan.borders[0]
        name = shape if layers is None else f"{shape}, {layers} layers"
        beyond = "more than was searched" if border.open_ended else border.sessions + 1
        ratio = border.reserved_peak / max(1, border.active_peak)
        print(f"| {name} | {gpu} | {plan.kv_bytes_per_token / 1024:.1f} KiB | {border.computed} | {border.sessions} | {beyond} | {ratio:.3f} |", flush=True)  # fmt: skip
        print(f"{name} on {gpu}: {time.time() - started:.0f} s", file=sys.stderr)


if __name__ == "__main__":
    main()
