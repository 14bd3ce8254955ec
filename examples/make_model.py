"""Write a model file with a correct header and no bytes on disk: a sparse .safetensors of any published shape.

    python examples/make_model.py --shape llama-3-8b out.safetensors
    python examples/make_model.py --shape mixtral-8x7b --folder mixtral/      # with a config.json beside it

A 16 GB file takes a few kilobytes of disk and a fraction of a second. Every weight reads as zero: memory depends on
shapes, not on values.
"""

from __future__ import annotations

import argparse
import json
from collections.abc import Callable, Iterator
from math import prod
from pathlib import Path
from typing import Any

Named = Iterator[tuple[str, tuple[int, ...]]]
BYTES = {"BF16": 2, "F16": 2, "F32": 4}


def llama(c: dict[str, Any]) -> Named:
    """Llama, Mistral, Qwen2 (biases), Gemma 2 (four norms), Mixtral (experts)."""
    hidden, head_dim = (
        c["hidden_size"],
        c.get("head_dim") or c["hidden_size"] // c["num_attention_heads"],
    )
    q, kv = c["num_attention_heads"] * head_dim, c["num_key_value_heads"] * head_dim
    yield "model.embed_tokens.weight", (c["vocab_size"], hidden)
    for i in range(c["num_hidden_layers"]):
        at = f"model.layers.{i}"
        for name, width in (("q_proj", q), ("k_proj", kv), ("v_proj", kv)):
            yield f"{at}.self_attn.{name}.weight", (width, hidden)
            if c["model_type"] == "qwen2":
                yield f"{at}.self_attn.{name}.bias", (width,)
        yield f"{at}.self_attn.o_proj.weight", (hidden, q)
        yield from (
            experts(c, at)
            if c["model_type"] == "mixtral"
            else gated(f"{at}.mlp", c["intermediate_size"], hidden)
        )
        norms = ["input_layernorm", "post_attention_layernorm"]
        if c["model_type"] == "gemma2":
            norms += ["pre_feedforward_layernorm", "post_feedforward_layernorm"]
        for name in norms:
            yield f"{at}.{name}.weight", (hidden,)
    yield "model.norm.weight", (hidden,)
    if not c.get("tie_word_embeddings"):
        yield "lm_head.weight", (c["vocab_size"], hidden)


def gated(at: str, inner: int, hidden: int) -> Named:
    yield f"{at}.gate_proj.weight", (inner, hidden)
    yield f"{at}.up_proj.weight", (inner, hidden)
    yield f"{at}.down_proj.weight", (hidden, inner)


def experts(c: dict[str, Any], at: str) -> Named:
    hidden, inner = c["hidden_size"], c["intermediate_size"]
    yield f"{at}.block_sparse_moe.gate.weight", (c["num_local_experts"], hidden)
    for j in range(c["num_local_experts"]):
        yield f"{at}.block_sparse_moe.experts.{j}.w1.weight", (inner, hidden)
        yield f"{at}.block_sparse_moe.experts.{j}.w2.weight", (hidden, inner)
        yield f"{at}.block_sparse_moe.experts.{j}.w3.weight", (inner, hidden)


def deepseek(c: dict[str, Any]) -> Named:
    hidden, heads, rope = c["hidden_size"], c["num_attention_heads"], c["qk_rope_head_dim"]
    yield "model.embed_tokens.weight", (c["vocab_size"], hidden)
    for i in range(c["num_hidden_layers"]):
        at = f"model.layers.{i}"
        yield f"{at}.self_attn.q_proj.weight", (heads * (c["qk_nope_head_dim"] + rope), hidden)
        yield f"{at}.self_attn.kv_a_proj_with_mqa.weight", (c["kv_lora_rank"] + rope, hidden)
        yield f"{at}.self_attn.kv_a_layernorm.weight", (c["kv_lora_rank"],)
        yield (
            f"{at}.self_attn.kv_b_proj.weight",
            (heads * (c["qk_nope_head_dim"] + c["v_head_dim"]), c["kv_lora_rank"]),
        )
        yield f"{at}.self_attn.o_proj.weight", (hidden, heads * c["v_head_dim"])
        if i < c["first_k_dense_replace"]:
            yield from gated(f"{at}.mlp", c["intermediate_size"], hidden)
        else:
            inner = c["moe_intermediate_size"]
            yield f"{at}.mlp.gate.weight", (c["n_routed_experts"], hidden)
            for j in range(c["n_routed_experts"]):
                yield from gated(f"{at}.mlp.experts.{j}", inner, hidden)
            yield from gated(f"{at}.mlp.shared_experts", inner * c["n_shared_experts"], hidden)
        yield f"{at}.input_layernorm.weight", (hidden,)
        yield f"{at}.post_attention_layernorm.weight", (hidden,)
    yield "model.norm.weight", (hidden,)
    yield "lm_head.weight", (c["vocab_size"], hidden)


def phi3(c: dict[str, Any]) -> Named:
    hidden, inner = c["hidden_size"], c["intermediate_size"]
    head_dim = hidden // c["num_attention_heads"]
    yield "model.embed_tokens.weight", (c["vocab_size"], hidden)
    for i in range(c["num_hidden_layers"]):
        at = f"model.layers.{i}"
        yield (
            f"{at}.self_attn.qkv_proj.weight",
            (hidden + 2 * c["num_key_value_heads"] * head_dim, hidden),
        )
        yield f"{at}.self_attn.o_proj.weight", (hidden, hidden)
        yield f"{at}.mlp.gate_up_proj.weight", (2 * inner, hidden)
        yield f"{at}.mlp.down_proj.weight", (hidden, inner)
        yield f"{at}.input_layernorm.weight", (hidden,)
        yield f"{at}.post_attention_layernorm.weight", (hidden,)
    yield "model.norm.weight", (hidden,)
    yield "lm_head.weight", (c["vocab_size"], hidden)


def gpt2(c: dict[str, Any]) -> Named:
    hidden = c["n_embd"]
    yield "wte.weight", (c["vocab_size"], hidden)
    yield "wpe.weight", (c["n_positions"], hidden)
    for i in range(c["n_layer"]):
        # Conv1D stores [in, out]
        products = (("attn.c_attn", hidden, 3 * hidden), ("attn.c_proj", hidden, hidden),
                    ("mlp.c_fc", hidden, 4 * hidden), ("mlp.c_proj", 4 * hidden, hidden))  # fmt: skip
        for name, inputs, outputs in products:
            yield f"h.{i}.{name}.weight", (inputs, outputs)
            yield f"h.{i}.{name}.bias", (outputs,)
        yield from layer_norms(f"h.{i}", ("ln_1", "ln_2"), hidden)
    yield from layer_norms("", ("ln_f",), hidden)


def layer_norms(at: str, names: tuple[str, ...], width: int) -> Named:
    for name in names:
        path = f"{at}.{name}" if at else name
        yield f"{path}.weight", (width,)
        yield f"{path}.bias", (width,)


def neox(c: dict[str, Any]) -> Named:
    hidden, inner = c["hidden_size"], c["intermediate_size"]
    yield "gpt_neox.embed_in.weight", (c["vocab_size"], hidden)
    for i in range(c["num_hidden_layers"]):
        at = f"gpt_neox.layers.{i}"
        products = (("attention.query_key_value", 3 * hidden, hidden), ("attention.dense", hidden, hidden),
                    ("mlp.dense_h_to_4h", inner, hidden), ("mlp.dense_4h_to_h", hidden, inner))  # fmt: skip
        for name, outputs, inputs in products:
            yield f"{at}.{name}.weight", (outputs, inputs)
            yield f"{at}.{name}.bias", (outputs,)
        yield from layer_norms(at, ("input_layernorm", "post_attention_layernorm"), hidden)
    yield from layer_norms("gpt_neox", ("final_layer_norm",), hidden)
    yield "embed_out.weight", (c["vocab_size"], hidden)


def falcon(c: dict[str, Any]) -> Named:
    hidden, head_dim = c["hidden_size"], c["hidden_size"] // c["num_attention_heads"]
    yield "transformer.word_embeddings.weight", (c["vocab_size"], hidden)
    for i in range(c["num_hidden_layers"]):
        at = f"transformer.h.{i}"
        yield f"{at}.self_attention.query_key_value.weight", (hidden + 2 * head_dim, hidden)
        yield f"{at}.self_attention.dense.weight", (hidden, hidden)
        yield f"{at}.mlp.dense_h_to_4h.weight", (4 * hidden, hidden)
        yield f"{at}.mlp.dense_4h_to_h.weight", (hidden, 4 * hidden)
        yield from layer_norms(at, ("input_layernorm",), hidden)
    yield from layer_norms("transformer", ("ln_f",), hidden)
    yield "lm_head.weight", (c["vocab_size"], hidden)


def config(model_type: str, architecture: str, **values: Any) -> dict[str, Any]:
    return {
        "model_type": model_type,
        "architectures": [architecture],
        "torch_dtype": "bfloat16",
        **values,
    }


def llama_config(
    layers: int, hidden: int, inner: int, heads: int, kv_heads: int, vocab: int, **values: Any
) -> dict[str, Any]:
    kind = values.pop("kind", ("llama", "LlamaForCausalLM"))
    return config(
        *kind, num_hidden_layers=layers, hidden_size=hidden, intermediate_size=inner, num_attention_heads=heads,
        num_key_value_heads=kv_heads, vocab_size=vocab, **values,
    )  # fmt: skip


SHAPES: dict[str, tuple[Callable[[dict[str, Any]], Named], dict[str, Any]]] = {
    "llama-3-8b": (llama, llama_config(32, 4096, 14336, 32, 8, 128256, max_position_embeddings=8192)),
    "llama-3-70b": (llama, llama_config(80, 8192, 28672, 64, 8, 128256, max_position_embeddings=8192)),
    "qwen2.5-7b": (llama, llama_config(
        28, 3584, 18944, 28, 4, 152064, kind=("qwen2", "Qwen2ForCausalLM"), max_position_embeddings=32768,
        use_sliding_window=False, sliding_window=131072, max_window_layers=28)),
    "mistral-7b": (llama, llama_config(
        32, 4096, 14336, 32, 8, 32000, kind=("mistral", "MistralForCausalLM"), max_position_embeddings=32768,
        sliding_window=4096)),
    "mixtral-8x7b": (llama, llama_config(
        32, 4096, 14336, 32, 8, 32000, kind=("mixtral", "MixtralForCausalLM"), max_position_embeddings=32768,
        num_local_experts=8, num_experts_per_tok=2)),
    "gemma-2-9b": (llama, llama_config(
        42, 3584, 14336, 16, 8, 256000, kind=("gemma2", "Gemma2ForCausalLM"), head_dim=256,
        max_position_embeddings=8192, sliding_window=4096, tie_word_embeddings=True)),
    "deepseek-v2-lite": (deepseek, config(
        "deepseek_v2", "DeepseekV2ForCausalLM", num_hidden_layers=27, hidden_size=2048, intermediate_size=10944,
        moe_intermediate_size=1408, num_attention_heads=16, num_key_value_heads=16, kv_lora_rank=512, q_lora_rank=None,
        qk_rope_head_dim=64, qk_nope_head_dim=128, v_head_dim=128, n_routed_experts=64, n_shared_experts=2,
        num_experts_per_tok=6, first_k_dense_replace=1, vocab_size=102400, max_position_embeddings=163840)),
    "phi-3-mini": (phi3, llama_config(
        32, 3072, 8192, 32, 32, 32064, kind=("phi3", "Phi3ForCausalLM"), max_position_embeddings=4096,
        sliding_window=2047, pad_token_id=32000)),
    "gpt2": (gpt2, config(
        "gpt2", "GPT2LMHeadModel", n_layer=12, n_embd=768, n_head=12, n_positions=1024, vocab_size=50257)),
    "gpt-neox": (neox, config(
        "gpt_neox", "GPTNeoXForCausalLM", num_hidden_layers=44, hidden_size=6144, intermediate_size=24576,
        num_attention_heads=64, vocab_size=50432, max_position_embeddings=2048)),
    "falcon-7b": (falcon, config(
        "falcon", "FalconForCausalLM", num_hidden_layers=32, hidden_size=4544, num_attention_heads=71, multi_query=True,
        parallel_attn=True, bias=False, new_decoder_architecture=False, alibi=False, vocab_size=65024,
        max_position_embeddings=2048)),
    "tiny": (llama, llama_config(4, 256, 768, 8, 2, 1024, max_position_embeddings=4096)),
}  # fmt: skip
"""Published configurations, and ``tiny`` for tests."""


LAYER_KEYS = ("num_hidden_layers", "n_layer")


def configured(shape: str, layers: int | None = None) -> dict[str, Any]:
    """The shape's configuration, cut to fewer layers if asked."""
    values = SHAPES[shape][1]
    return {key: layers if layers and key in LAYER_KEYS else value for key, value in values.items()}


def write(path: Path, shape: str, dtype: str, layers: int | None = None) -> int:
    """Write the sparse file; the size it appears to have."""
    build, values = SHAPES[shape][0], configured(shape, layers)
    header: dict[str, Any] = {"__metadata__": {"format": "pt"}}
    position = 0
    for name, sizes in build(values):
        end = position + prod(sizes) * BYTES[dtype]
        header[name] = {"dtype": dtype, "shape": list(sizes), "data_offsets": [position, end]}
        position = end
    text = json.dumps(header).encode()
    text += b" " * (-len(text) % 8)
    with path.open("wb") as stream:
        stream.write(len(text).to_bytes(8, "little") + text)
        stream.truncate(8 + len(text) + position)
    return 8 + len(text) + position


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--shape", choices=sorted(SHAPES), required=True)
    parser.add_argument("--layers", type=int, help="fewer layers than published")
    parser.add_argument("--dtype", choices=sorted(BYTES), default="BF16")
    parser.add_argument(
        "--folder",
        action="store_true",
        help="make OUT a folder with model.safetensors and config.json",
    )
    parser.add_argument("out", type=Path)
    arguments = parser.parse_args()
    path: Path = arguments.out
    if arguments.folder:
        path.mkdir(parents=True, exist_ok=True)
        (path / "config.json").write_text(
            json.dumps(configured(arguments.shape, arguments.layers), indent=2) + "\n",
            encoding="utf-8",
        )
        path /= "model.safetensors"
    size = write(path, arguments.shape, arguments.dtype, arguments.layers)
    print(f"{path}: {arguments.shape}, {size / 1e9:.1f} GB as seen, nearly nothing on disk")


if __name__ == "__main__":
    main()
