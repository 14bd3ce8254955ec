"""One layer's tensors to its Block: which module is the query, which the gate, which norm stands where.

Tables of names first; what fits no table makes the layer unreadable, which ``infer`` then says. Names are those of
transformers 5.24, Llama's own release, and the Hub's older checkpoints. It does not know the rest of the model.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass

from vramdoc.checkpoint.modules import Modules, group_modules, norm, projection
from vramdoc.checkpoint.shape import (
    Attention,
    Block,
    Experts,
    FeedForward,
    LatentAttention,
    Norm,
    Projection,
    StateMixer,
    Storage,
)  # fmt: skip
from vramdoc.checkpoint.tensors import StoredTensor

QUERY = ("q_proj", "query", "wq", "q_lin", "query_proj")
KEY = ("k_proj", "key", "wk", "k_lin", "key_proj")
VALUE = ("v_proj", "value", "wv", "v_lin", "value_proj")
OUTPUT = ("o_proj", "out_proj", "wo", "out_lin", "dense", "c_proj")
FUSED = ("qkv_proj", "query_key_value", "c_attn", "Wqkv", "qkv", "W_pack", "wqkv")
GATE, UP = (
    ("gate_proj", "w1"),
    ("up_proj", "w3", "c_fc", "dense_h_to_4h", "fc1", "lin1", "intermediate.dense", "fc_in"),
)
GATE_UP = ("gate_up_proj",)
DOWN = ("down_proj", "w2", "c_proj", "dense_4h_to_h", "fc2", "lin2", "output.dense", "fc_out")
ROUTER = ("gate", "router", "gate.wg")

BEFORE_MIXER = (
    "input_layernorm", "ln_1", "attention_norm", "norm_1", "self_attn_layer_norm", "ln_attn", "norm", "input_norm",
)  # fmt: skip
BEFORE_FEED_FORWARD = (
    "pre_feedforward_layernorm", "post_attention_layernorm", "ln_2", "ffn_norm", "norm_2", "ln_mlp", "final_layer_norm",
)  # fmt: skip
AFTER_FEED_FORWARD = ("post_feedforward_layernorm",)
ENCODER_NORMS = (
    ("attention.output.LayerNorm", "sa_layer_norm"),
    ("output.LayerNorm", "output_layer_norm"),
)
"""BERT and DistilBERT normalise after each half."""

HEAD_SIZES = (128, 64, 96, 80, 256, 192, 112)
"""Head sizes of published models, commonest first: what is tried when nothing states one."""

_EXPERT = re.compile(r"(?P<path>.*experts)\.(?P<index>\d+)\.(?P<module>.+)\Z")


@dataclass(frozen=True, slots=True, kw_only=True)
class Stated:
    """What config.json says about every layer; None where it is silent."""

    heads: int | None = None
    kv_heads: int | None = None
    head_dim: int | None = None
    active_experts: int | None = None


def read_block(
    tensors: Mapping[str, StoredTensor], stated: Stated, window: int | None
) -> Block | None:
    """The block that one layer's ``tensors`` (names relative to the layer) make up; None if it is not understood."""
    modules = group_modules(tensors)
    mixer = _read_mixer(modules, stated, window)
    if mixer is None:
        return None
    norms = {path: norm(parts) for path, parts in modules.items()}

    def first(names: tuple[str, ...]) -> Norm | None:
        return next((found for name in names if (found := norms.get(name)) is not None), None)

    after_halves = [first(names) for names in ENCODER_NORMS]
    before_ff = first(BEFORE_FEED_FORWARD)
    gemma = norms.get("pre_feedforward_layernorm") is not None
    return Block(
        mixer=mixer,
        feed_forward=_read_feed_forward(modules, stated),
        before_mixer=first(BEFORE_MIXER),
        after_mixer=norms.get("post_attention_layernorm") if gemma else after_halves[0],
        before_feed_forward=before_ff,
        after_feed_forward=first(AFTER_FEED_FORWARD) or after_halves[1],
    )


def _named(modules: Modules, names: tuple[str, ...], *, attention: bool) -> Projection | None:
    """The projection whose path ends in one of ``names``, inside or outside the attention module."""
    for name in names:
        for path, parts in modules.items():
            ends = path == name or path.endswith("." + name)
            if (
                ends
                and ("att" in path.lower()) == attention
                and "experts" not in path
                and "shared_expert" not in path
            ):
                found = projection(path, parts)
                if found is not None:
                    return found
    return None


def _read_mixer(
    modules: Modules, stated: Stated, window: int | None
) -> Attention | LatentAttention | StateMixer | None:
    if any(path.rpartition(".")[2] == "kv_a_proj_with_mqa" for path in modules):
        return _read_latent(modules)
    output = _named(modules, OUTPUT, attention=True)
    separate = [_named(modules, names, attention=True) for names in (QUERY, KEY, VALUE)]
    fused = _named(modules, FUSED, attention=True)
    if output is None or (None in separate and fused is None):
        return _read_state(modules)
    found = tuple(item for item in separate if item is not None)
    if len(found) == 3:
        widths = (found[1].outputs, found[2].outputs)
    else:
        assert fused is not None
        # query_out equals the output projection's input: what is left over is keys and values, half each
        kv = fused.outputs - output.inputs
        if kv <= 0 or kv % 2:
            return None
        found, widths = (fused,), (kv // 2, kv // 2)
    query_norm, key_norm = _head_norm(modules, "q_norm"), _head_norm(modules, "k_norm")
    query_width = output.inputs if len(found) == 1 else found[0].outputs
    per_head = query_norm.width if query_norm and query_norm.width < query_width else None
    head_dim = head_size(stated, query_width, widths[0], per_head=per_head, sinks=_sinks(modules))
    if head_dim is None:
        return None
    kv_heads = widths[0] // head_dim
    value_dim = widths[1] // kv_heads
    if value_dim == 0 or output.inputs % value_dim:
        return None
    heads = output.inputs // value_dim
    return Attention(
        projections=found, output=output, heads=heads, kv_heads=kv_heads, head_dim=head_dim,
        value_dim=value_dim, query_norm=query_norm, key_norm=key_norm,
        gated=len(found) == 3 and found[0].outputs == 2 * heads * head_dim, window=window,
    )  # fmt: skip


def _head_norm(modules: Modules, name: str) -> Norm | None:
    return next(
        (norm(parts) for path, parts in modules.items() if path.rpartition(".")[2] == name), None
    )


def _sinks(modules: Modules) -> int | None:
    """gpt-oss learns one attention sink a head."""
    return next((parts["sinks"].elements for parts in modules.values() if "sinks" in parts), None)


def head_size(
    stated: Stated,
    query_width: int,
    key_width: int,
    *,
    per_head: int | None = None,
    sinks: int | None = None,
) -> int | None:
    """The head size: stated, or that of a per-head norm, or by the number of sinks, or the commonest that divides.

    None if nothing fits. A stated size that does not divide the widths belongs to another model and is not used.
    """
    by_heads = (
        query_width // stated.heads if stated.heads and query_width % stated.heads == 0 else None
    )
    by_sinks = query_width // sinks if sinks else None
    for size in (stated.head_dim, per_head, by_sinks, by_heads, *HEAD_SIZES):
        if size and query_width % size == 0 and key_width % size == 0:
            return size
    return key_width if key_width and query_width % key_width == 0 else None


def _read_latent(modules: Modules) -> LatentAttention | None:
    def named(*names: str) -> Projection | None:
        return _named(modules, names, attention=True)

    compress, expand, output = named("kv_a_proj_with_mqa"), named("kv_b_proj"), named("o_proj")
    query = tuple(item for item in (named("q_a_proj"), named("q_b_proj")) if item) or tuple(
        item for item in (named("q_proj"),) if item
    )
    compress_norm = _head_norm(modules, "kv_a_layernorm")
    if compress is None or expand is None or output is None or compress_norm is None or not query:
        return None
    rope = compress.outputs - compress_norm.width
    # heads*(nope + rope) - heads*(nope + value) + heads*value = heads*rope
    heads, rest = (
        divmod(query[-1].outputs - expand.outputs + output.inputs, rope) if rope > 0 else (0, 1)
    )
    if rest or heads <= 0 or output.inputs % heads or query[-1].outputs % heads:
        return None
    return LatentAttention(
        query=query, query_norm=_head_norm(modules, "q_a_layernorm"), compress=compress, compress_norm=compress_norm,
        expand=expand, output=output, heads=heads, latent=compress_norm.width, rope=rope,
        nope=query[-1].outputs // heads - rope, value_dim=output.inputs // heads,
    )  # fmt: skip


def _read_state(modules: Modules) -> StateMixer | None:
    """Mamba's ``A_log [inner, d_state]`` states its size; a gated delta net's key size is not in its shapes."""
    for path, parts in modules.items():
        if "A_log" in parts:
            conv = modules.get(f"{path}.conv1d" if path else "conv1d", {}).get("weight")
            a_log = parts["A_log"]
            two_d = len(a_log.shape) == 2
            return StateMixer(
                kind="mamba" if two_d else "gated-delta" if "linear_attn" in path else "mamba2",
                conv_elements=conv.elements if conv else None,
                state_elements=a_log.elements if two_d else None,
            )
    return None


def _read_feed_forward(modules: Modules, stated: Stated) -> FeedForward | Experts | None:
    members: dict[int, Modules] = {}
    stacked: FeedForward | None = None
    for path, parts in modules.items():
        match = _EXPERT.match(path)
        if match is not None:
            members.setdefault(int(match["index"]), {})[match["module"]] = parts
        elif path.endswith("experts") and stacked is None:
            stacked = _read_stacked(path, parts)
    routed = tuple(
        found for index in sorted(members) if (found := _read_dense(members[index])) is not None
    )
    router = _named(modules, ROUTER, attention=False)
    if router is None or not (routed or stacked):
        return _read_dense(modules)
    shared = {
        path.split("shared_expert", 1)[1].partition(".")[2]: parts
        for path, parts in modules.items()
        if "shared_expert" in path and "shared_expert_gate" not in path
    }
    return Experts(
        router=router, routed=routed or (stacked,) if stacked else routed, count=router.outputs,
        active=min(stated.active_experts or 2, router.outputs), shared=_read_dense(shared) if shared else None,
    )  # fmt: skip


def _read_dense(modules: Modules) -> FeedForward | None:
    down = _named(modules, DOWN, attention=False)
    gate_up, gate, up = (_named(modules, names, attention=False) for names in (GATE_UP, GATE, UP))
    if down is None:
        return None
    ups = (gate_up,) if gate_up else tuple(item for item in (gate, up) if item is not None)
    if not ups or sum(item.outputs for item in ups) not in {down.inputs, 2 * down.inputs}:
        return None
    return FeedForward(up=ups, down=down)


def _read_stacked(path: str, parts: Mapping[str, StoredTensor]) -> FeedForward | None:
    """In transformers 5, ``experts.gate_up_proj`` and ``experts.down_proj``, each with the experts as first dimension."""
    gate_up, down = parts.get("gate_up_proj"), parts.get("down_proj")
    if gate_up is None or down is None or len(gate_up.shape) != 3 or len(down.shape) != 3:
        return None
    # the inner size is the one whose double is in gate_up
    inner = next((size for size in down.shape[1:] if 2 * size in gate_up.shape[1:]), 0)
    if inner == 0:
        return None
    hidden = down.elements // down.shape[0] // inner
    return FeedForward(
        up=(
            Projection(
                name=f"{path}.gate_up_proj", storage=Storage.STACKED, inputs=hidden, outputs=2 * inner,
                tensors=(gate_up.name,),
            ),
        ),
        down=Projection(
            name=f"{path}.down_proj", storage=Storage.STACKED, inputs=inner, outputs=hidden, tensors=(down.name,)
        ),
    )  # fmt: skip
