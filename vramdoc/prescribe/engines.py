"""How serving engines spell the changes that remedies ask of them. Data only; it knows no remedy.

Flags as their command lines have them: vLLM (``vllm serve --help``), SGLang (``sglang.launch_server``), TGI (``text-generation-launcher``).
"""

from __future__ import annotations

from collections.abc import Collection, Mapping

ENGINES = ("vllm", "sglang", "tgi")
"""By the signs that a crash text gives of them; the first also serves as the example where none is at work."""

ENGINE_COMMANDS: Mapping[str, Mapping[str, str]] = {
    "engine_room": {
        "vllm": "vllm serve MODEL --gpu-memory-utilization 0.85 --max-num-seqs 64",
        "sglang": "python -m sglang.launch_server --model-path MODEL --mem-fraction-static 0.8 --max-running-requests 64",
        "tgi": "text-generation-launcher --model-id MODEL --cuda-memory-fraction 0.85 --max-batch-prefill-tokens 2048",
    },
    "engine_more": {
        "vllm": "vllm serve MODEL --gpu-memory-utilization 0.95 --max-num-seqs 64    # or --tensor-parallel-size 2",
        "sglang": "python -m sglang.launch_server --model-path MODEL --mem-fraction-static 0.92    # or --tp 2",
        "tgi": "text-generation-launcher --model-id MODEL --cuda-memory-fraction 0.95    # or --num-shard 2",
    },
    "engine_length": {
        "vllm": "vllm serve MODEL --max-model-len {stored_tokens}",
        "sglang": "python -m sglang.launch_server --model-path MODEL --context-length {stored_tokens}",
        "tgi": "text-generation-launcher --model-id MODEL --max-total-tokens {stored_tokens}",
    },
    "engine_eager": {
        "vllm": "vllm serve MODEL --enforce-eager    # or --gpu-memory-utilization 0.85",
        "sglang": "python -m sglang.launch_server --model-path MODEL --disable-cuda-graph",
        "tgi": "text-generation-launcher --model-id MODEL --cuda-graphs 0",
    },
}
"""What is wanted -> engine -> command line."""


def engine_at_work(signs: Collection[str]) -> str | None:
    """The serving engine that a text shows, if any."""
    return next((engine for engine in ENGINES if engine in signs), None)
