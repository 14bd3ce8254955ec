"""What was inferred, in sentences for the report, each with how surely it is known. It infers nothing itself."""

from __future__ import annotations

from vramdoc.checkpoint.layers import HEAD_SIZES, Stated
from vramdoc.checkpoint.shape import (
    QUANTISED,
    Attention,
    Block,
    Experts,
    Inference,
    LatentAttention,
    Projection,
    StateMixer,
    Sureness,
    block_projections,
)  # fmt: skip
from vramdoc.checkpoint.tensors import Checkpoint


def inference_notes(
    checkpoint: Checkpoint,
    blocks: list[Block],
    path: str,
    stated: Stated,
    head: Projection | None,
    *,
    encoder: bool,
) -> list[Inference]:
    """What a report says about a decoder or an encoder, the certain things first."""
    notes = [Inference(f"{len(blocks)} layers under {path}", Sureness.EXACT)]
    kinds = sorted({_describe(block.mixer) for block in blocks})
    notes += [Inference(f"attention: {kind}", Sureness.EXACT) for kind in kinds]
    first = next((block.mixer for block in blocks if isinstance(block.mixer, Attention)), None)
    if first is not None:
        notes.append(_head_note(first, stated))
    if head is None and not encoder:
        notes.append(
            Inference(
                "no output layer is stored: it is taken to be the embedding (tied)", Sureness.NAMED
            )
        )
    experts = next(
        (block.feed_forward for block in blocks if isinstance(block.feed_forward, Experts)), None
    )
    if experts is not None:
        how = Sureness.STATED if stated.active_experts else Sureness.GUESSED
        notes.append(
            Inference(f"{experts.count} experts, {experts.active} visited by each token", how)
        )
    storages = sorted(
        {item.storage for block in blocks for item in block_projections(block)} & QUANTISED
    )
    notes += [
        Inference(f"weights are stored quantised: {storage}", Sureness.NAMED)
        for storage in storages
    ]
    if any(block.feed_forward is None for block in blocks):
        notes.append(
            Inference(
                "some feed-forward layers are not understood; they are loaded, not run",
                Sureness.NAMED,
            )
        )
    if checkpoint.config is None:
        notes.append(
            Inference("sliding windows, shared KV layers, position limits", Sureness.UNKNOWN)
        )
    return notes


def _describe(mixer: Attention | LatentAttention | StateMixer) -> str:
    match mixer:
        case LatentAttention():
            return f"latent (MLA), {mixer.latent} + {mixer.rope} elements a token"
        case StateMixer():
            return f"state of constant size ({mixer.kind})"
        case Attention():
            kind = (
                "multi-head"
                if mixer.kv_heads == mixer.heads
                else "grouped-query"
                if mixer.kv_heads > 1
                else "multi-query"
            )
            window = f", window {mixer.window}" if mixer.window else ""
            return f"{kind}, {mixer.heads} heads over {mixer.kv_heads} of {mixer.head_dim}{window}"


def _head_note(mixer: Attention, stated: Stated) -> Inference:
    if mixer.head_dim == stated.head_dim or (stated.heads and stated.heads == mixer.heads):
        return Inference(f"head size {mixer.head_dim}", Sureness.STATED)
    if mixer.query_norm is not None and mixer.query_norm.width == mixer.head_dim:
        return Inference(
            f"head size {mixer.head_dim}, the width of the per-head norm", Sureness.EXACT
        )
    others = [
        str(size) for size in HEAD_SIZES
        if size != mixer.head_dim and mixer.key_width % size == 0 and (mixer.heads * mixer.head_dim) % size == 0
    ]  # fmt: skip
    if not others:
        return Inference(
            f"head size {mixer.head_dim}, the only usual one that fits", Sureness.GUESSED
        )
    return Inference(
        f"head size {mixer.head_dim} ({', '.join(others)} would fit too); KV bytes do not depend on it",
        Sureness.GUESSED,
    )
