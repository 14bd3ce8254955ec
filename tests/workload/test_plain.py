"""The plain transformer computes what transformers' own classes compute: same parameters, same logits."""

import json
from pathlib import Path

import pytest
import torch
import transformers
from safetensors.torch import save_file

from vramdoc.checkpoint import DecoderShape, EncoderShape, infer_shape, read_checkpoint
from vramdoc.workload.caches import CacheFactory
from vramdoc.workload.plain import Plain
from vramdoc.workload.weights import load_weights

SMALL = {
    "vocab_size": 300, "hidden_size": 64, "intermediate_size": 128, "num_hidden_layers": 2, "num_attention_heads": 4,
    "num_key_value_heads": 2, "pad_token_id": None, "bos_token_id": 1, "eos_token_id": 2, "rms_norm_eps": 1e-6,
}  # fmt: skip
EXACT = {
    "llama": {}, "mistral": {"sliding_window": None}, "qwen2": {}, "qwen3": {"head_dim": 32}, "phi3": {},
}  # fmt: skip
"""Families whose arithmetic the plain transformer follows to the end; others differ in rotation, caps or residuals."""


def saved(folder: Path, model: torch.nn.Module, config: dict) -> DecoderShape | EncoderShape:
    save_file(
        {name: p.detach().clone() for name, p in model.named_parameters()},
        folder / "model.safetensors",
    )
    (folder / "config.json").write_text(json.dumps(config))
    shape = infer_shape(read_checkpoint(folder))
    assert isinstance(shape, (DecoderShape, EncoderShape))
    return shape


def plain(folder: Path, shape: DecoderShape | EncoderShape) -> Plain:
    weights = dict(load_weights(read_checkpoint(folder), device="cpu"))
    return Plain(shape, weights, torch.float32, causal=isinstance(shape, DecoderShape))


@pytest.mark.parametrize(
    ("family", "strategy"),
    [
        *((family, "dynamic") for family in EXACT),
        *(("llama", name) for name in ("static", "chunked", "paged")),
    ],
)
def test_decoder_gives_the_logits_of_transformers(
    tmp_path: Path, family: str, strategy: str
) -> None:
    torch.manual_seed(0)
    config = transformers.CONFIG_MAPPING[family](**{**SMALL, **EXACT[family]})
    reference = transformers.AutoModelForCausalLM.from_config(config).eval()
    shape = saved(tmp_path, reference, config.to_dict())
    model = plain(tmp_path, shape)
    cache = CacheFactory(strategy, layers=2, capacity=40, sessions=1).open()
    past = transformers.DynamicCache(config=config)
    with torch.inference_mode():
        for tokens in (9, 1, 1, 6, 1):  # a prompt, an answer, a second turn over its past
            ids = torch.randint(300, (2, tokens))
            theirs = reference(ids, cache=past, use_cache=True).logits[:, -1:]
            torch.testing.assert_close(model.logits(ids, cache), theirs, rtol=1e-4, atol=1e-4)


def test_encoder_gives_the_states_of_transformers(tmp_path: Path) -> None:
    torch.manual_seed(0)
    config = transformers.BertConfig(
        **{**SMALL, "pad_token_id": 0}, layer_norm_eps=1e-6, hidden_dropout_prob=0.0
    )
    reference = transformers.BertModel(config, add_pooling_layer=False).eval()
    with torch.no_grad():  # all one token type: ours adds the first row, whichever it is
        reference.embeddings.token_type_embeddings.weight[1] = (
            reference.embeddings.token_type_embeddings.weight[0]
        )
    shape = saved(tmp_path, reference, config.to_dict())
    ids = torch.randint(1, 300, (2, 11))
    with torch.inference_mode():
        theirs = reference(ids).last_hidden_state
        torch.testing.assert_close(
            plain(tmp_path, shape).hidden_states(ids), theirs, rtol=1e-4, atol=1e-4
        )


@pytest.mark.parametrize(
    "family", ["mixtral", "deepseek_v3", "gemma2", "gpt_neox", "falcon", "bloom", "gpt2"]
)
def test_other_families_run_with_all_their_parameters(tmp_path: Path, family: str) -> None:
    """Not the same numbers, but each parameter is used: its gradient is not zero."""
    torch.manual_seed(0)
    more = {"deepseek_v3": {"kv_lora_rank": 16, "q_lora_rank": 24, "qk_rope_head_dim": 8, "qk_nope_head_dim": 8,
                            "v_head_dim": 16, "n_routed_experts": 4, "num_experts_per_tok": 2, "n_group": 1,
                            "topk_group": 1, "moe_intermediate_size": 32, "first_k_dense_replace": 1},
            "mixtral": {"num_local_experts": 4}, "gemma2": {"head_dim": 32}, "bloom": {"n_head": 4, "n_layer": 2}, "gpt2": {"n_embd": 64, "n_head": 4, "n_layer": 2}}  # fmt: skip
    config = transformers.CONFIG_MAPPING[family](**{**SMALL, **more.get(family, {})})
    reference = transformers.AutoModelForCausalLM.from_config(config)
    shape = saved(tmp_path, reference, config.to_dict())
    weights = {
        name: w.requires_grad_()
        for name, w in load_weights(read_checkpoint(tmp_path), device="cpu")
    }
    model = Plain(shape, weights, torch.float32, causal=True)
    model.logits(torch.randint(300, (2, 12)), every=True).square().sum().backward()
    idle = [
        name for name, weight in weights.items() if weight.grad is None and name not in shape.unused
    ]
    # expert choices carry no gradient; the router's scores do
    assert [name for name in idle if "e_score" not in name] == []
