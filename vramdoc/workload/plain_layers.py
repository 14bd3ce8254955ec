"""Norms, matrix products and feed-forward layers of the plain transformer. They know no attention and no cache."""

from __future__ import annotations

from collections.abc import Callable, Mapping

import torch
import torch.nn.functional as F  # noqa: N812 - torch's own name for it
from torch import Tensor

from vramdoc.checkpoint.shape import QUANTISED, Experts, FeedForward, Norm, Projection, Storage

Weights = Mapping[str, Tensor]
Layer = Callable[[Tensor], Tensor]
EPSILON = 1e-6


def feed_forward(
    part: FeedForward | Experts | None, weights: Weights, dtype: torch.dtype
) -> Layer | None:
    """Dense or a mixture of experts; None where there is none."""
    if part is None:
        return None
    return (
        _Experts(part, weights, dtype)
        if isinstance(part, Experts)
        else _dense(part, weights, dtype)
    )


def _dense(
    part: FeedForward, weights: Weights, dtype: torch.dtype, expert: int | None = None
) -> Layer:
    ups = [linear(item, weights, dtype, expert) for item in part.up]
    down = linear(part.down, weights, dtype, expert)
    if not part.gated:
        return lambda hidden: down(F.gelu(ups[0](hidden)))
    if len(ups) == 2:
        return lambda hidden: down(F.silu(ups[0](hidden)) * ups[1](hidden))

    def fused(hidden: Tensor) -> Tensor:
        gate, up = ups[0](hidden).chunk(2, dim=-1)
        return down(up * F.silu(gate))

    return fused


class _Experts:
    """A mixture of experts whose tokens are spread evenly: which expert a token visits is a value, and values of a
    virtual device mean nothing. Even spreading is the least memory that routing can need.
    """  # noqa: D205

    def __init__(self, part: Experts, weights: Weights, dtype: torch.dtype) -> None:
        self._part = part
        self._router = linear(part.router, weights, dtype)
        stacked = len(part.routed) == 1 and part.count > 1
        self._routed = [
            _dense(
                part.routed[0] if stacked else part.routed[index],
                weights,
                dtype,
                index if stacked else None,
            )
            for index in range(part.count if stacked else len(part.routed))
        ]
        self._shared = _dense(part.shared, weights, dtype) if part.shared else None

    def __call__(self, hidden: Tensor) -> Tensor:
        flat = hidden.reshape(-1, hidden.shape[-1])
        scores = F.softmax(self._router(flat), dim=1, dtype=torch.float)
        scores, _ = torch.topk(scores, self._part.active, dim=-1)
        scores = (scores / scores.sum(dim=-1, keepdim=True)).to(hidden.dtype)
        mixed = torch.zeros_like(flat)
        visits, count = flat.shape[0] * self._part.active, len(self._routed)
        for index, expert in enumerate(self._routed):
            tokens = visits // count + (index < visits % count)
            if tokens:
                rows = torch.arange(tokens, device=flat.device) % flat.shape[0]
                out = expert(flat[rows]) * scores[rows, :1]
                mixed.index_add_(0, rows, out.to(mixed.dtype))
        if self._shared is not None:
            mixed = mixed + self._shared(flat)
        return mixed.view_as(hidden)


def norm(shape: Norm | None, weights: Weights) -> Layer:
    """LayerNorm with a bias, RMSNorm without, nothing for None."""
    if shape is None:
        return lambda hidden: hidden
    weight, width = weights[shape.weight], shape.width
    if shape.bias is not None:
        bias = weights[shape.bias]
        return lambda hidden: F.layer_norm(hidden, (width,), weight, bias, EPSILON)

    def rms(hidden: Tensor) -> Tensor:
        dtype = hidden.dtype
        hidden = hidden.to(torch.float32)
        variance = hidden.pow(2).mean(-1, keepdim=True)
        hidden = hidden * torch.rsqrt(variance + EPSILON)
        return weight * hidden.to(dtype)

    return rms


def linear(
    part: Projection, weights: Weights, dtype: torch.dtype, expert: int | None = None
) -> Layer:
    """One projection, in whatever way its weight is stored."""
    weight = weights[part.tensors[0]]
    bias = weights[part.bias] if part.bias else None
    if part.storage is Storage.CONV1D:
        assert bias is not None  # only a bias tells a Conv1D from a Linear

        def conv1d(hidden: Tensor) -> Tensor:
            return torch.addmm(bias, hidden.reshape(-1, part.inputs), weight).view(
                *hidden.shape[:-1], part.outputs
            )

        return conv1d
    if part.storage is Storage.STACKED:
        assert expert is not None  # a stacked weight belongs to the experts
        member = weight[expert] if weight.shape[1] == part.outputs else weight[expert].T
        return lambda hidden: F.linear(hidden, member)
    if part.storage in QUANTISED:
        return lambda hidden: F.linear(hidden, _dequantise(part, weight, dtype), bias)
    return lambda hidden: F.linear(hidden, weight, bias)


def _dequantise(part: Projection, weight: Tensor, dtype: torch.dtype) -> Tensor:
    """The projection's weight in the computing type, for one product. Codes that torch cannot cast get their room only."""
    if part.storage in {Storage.FP8, Storage.INT8}:
        return weight.to(dtype)
    return torch.empty((part.outputs, part.inputs), dtype=dtype, device=weight.device)
