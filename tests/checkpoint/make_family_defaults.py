"""Write vramdoc/checkpoint/family_defaults.json: what transformers' config classes take where config.json is silent.

    python tests/checkpoint/make_family_defaults.py

Only keys that decide what a cache holds are kept, and only of families that ``kv_families`` knows. Sizes that every config.json
states (layers, hidden size, heads) are left out: a file without them is refused.
"""

from __future__ import annotations

import dataclasses
import json
from pathlib import Path

import transformers

from vramdoc.checkpoint import config as module
from vramdoc.checkpoint.kv_families import FAMILIES

KEYS = frozenset(
    [
        *module.ALIASES["kv_heads"], *module.ALIASES["head_dim"], "sliding_window", "use_sliding_window", "max_window_layers",
        "sliding_window_pattern", "attention_chunk_size", "no_rope_layer_interval", "full_attention_interval",
        "num_kv_shared_layers", "multi_query", "new_decoder_architecture", "attn_layer_period", "attn_layer_offset",
        "mamba_d_state", "mamba_d_conv", "mamba_expand", "mamba_d_ssm", "mamba_n_groups", "mamba_ngroups", "conv_kernel", "expand",
        "state_size", "ssm_state_size", "n_groups", "mamba_num_heads", "mamba_head_dim", "conv_L_cache", "kv_lora_rank",
        "qk_rope_head_dim", "qk_nope_head_dim", "v_head_dim", "index_head_dim", "linear_num_key_heads", "linear_num_value_heads",
        "linear_key_head_dim", "linear_value_head_dim", "linear_conv_kernel_dim", "linear_head_dim", "linear_num_heads",
    ]
)  # fmt: skip


def defaults(family: str) -> dict[str, object]:
    """The family's own defaults; ``layer_types`` as true where its class works out which layer is of which kind."""
    own = {
        item.name: item.default for item in dataclasses.fields(transformers.CONFIG_MAPPING[family])
    }
    found = {
        name: value
        for name, value in sorted(own.items())
        if name in KEYS and isinstance(value, (int, bool))
    }
    return {**found, **({"layer_types": True} if "layer_types" in own else {})}


def table() -> str:
    """The whole file, a family a line."""
    lines = [
        f"{json.dumps(family)}: {json.dumps(found)}"
        for family in sorted(FAMILIES)
        if (found := defaults(family))
    ]
    return "{\n" + ",\n".join(lines) + "\n}\n"


if __name__ == "__main__":
    Path(module.__file__).with_name("family_defaults.json").write_text(table(), encoding="utf-8")
