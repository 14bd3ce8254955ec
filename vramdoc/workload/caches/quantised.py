"""Quantised caches: each step dequantises the whole layer, which is what their transient costs.

``Quantised`` is the scheme of transformers 5.24's ``QuantizedLayer`` (KIVI's): codes of 8 or 4 bits with a scale and a zero a
group, and a residual of recent tokens as they are; once ``RESIDUAL`` of them have gathered, everything is quantised again. It
holds to the byte what the ``hqq`` backend holds; its codes are made by plain torch operations, so its transients are those of
an implementation that does not search for better scales. ``Fp8`` is ``Fp8QuantizedLayer``: eight-bit floats under one
frozen scale a tensor, to which new tokens are appended.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import torch
from torch import Tensor

from vramdoc.workload.caches.layer import PairCache

RESIDUAL = 128
GROUP = 64
"""Elements that share a scale (``residual_length`` and ``q_group_size`` of transformers 5.24)."""


@dataclass(frozen=True, slots=True)
class _Codes:
    codes: Tensor
    scale: Tensor
    zero: Tensor
    shape: tuple[int, ...]
    bits: int

    @classmethod
    def of(cls, states: Tensor, bits: int) -> _Codes:
        grouped = states.reshape(-1, GROUP if states.numel() % GROUP == 0 else states.shape[-1])
        zero = grouped.amin(-1, keepdim=True)
        scale = ((grouped.amax(-1, keepdim=True) - zero) / (2**bits - 1)).clamp_min(1e-8)
        codes = ((grouped - zero) / scale).round().to(torch.uint8)
        if bits == 4:
            codes = codes[:, ::2] | (codes[:, 1::2] << 4)
        return cls(codes, scale, zero, tuple(states.shape), bits)

    def states(self) -> Tensor:
        codes = self.codes
        if self.bits == 4:
            codes = torch.stack((codes & 0xF, codes >> 4), dim=-1).flatten(-2)
        return (codes.to(self.scale.dtype) * self.scale + self.zero).reshape(self.shape)

    def tensors(self) -> tuple[Tensor, ...]:
        return self.codes, self.scale, self.zero


class Quantised:
    """One layer in groups, keys and values alike."""

    def __init__(self, bits: int) -> None:
        self._bits = bits
        self._key: _Codes | None = None
        self._value: _Codes | None = None
        self._recent: tuple[Tensor, Tensor] | None = None

    def update(self, key: Tensor, value: Tensor, past: int) -> tuple[Tensor, Tensor]:  # noqa: ARG002 - codes know their length
        """Dequantise, concatenate, and now and then quantise again."""
        if self._key is None or self._value is None:
            self._key, self._value = _Codes.of(key, self._bits), _Codes.of(value, self._bits)
            return key, value
        recent = () if self._recent is None else ((self._recent[0],), (self._recent[1],))
        keys = torch.cat([self._key.states(), *(recent[0] if recent else ()), key], dim=-2)
        values = torch.cat([self._value.states(), *(recent[1] if recent else ()), value], dim=-2)
        length = key.shape[2] + (self._recent[0].shape[2] if self._recent else 0)
        if length >= RESIDUAL:
            self._key, self._value = _Codes.of(keys, self._bits), _Codes.of(values, self._bits)
            self._recent = None
        elif self._recent is None:
            self._recent = (key.clone(), value.clone())
        else:
            self._recent = (
                torch.cat([self._recent[0], key], dim=-2),
                torch.cat([self._recent[1], value], dim=-2),
            )
        return keys, values

    def key_length(self, past: int, new: int) -> int:
        """All tokens so far."""
        return past + new

    def tensors(self) -> Iterator[Tensor]:
        """Codes, scales, zeros and the residual."""
        for codes in (self._key, self._value):
            if codes is not None:
                yield from codes.tensors()
        yield from self._recent or ()

    def close(self) -> None:
        """Nothing is shared."""


class Fp8(PairCache):
    """One layer of eight-bit floats: old and new codes coexist while they are concatenated."""

    def __init__(self) -> None:
        super().__init__()
        self._scales: tuple[Tensor, Tensor] | None = None

    def update(self, key: Tensor, value: Tensor, past: int) -> tuple[Tensor, Tensor]:  # noqa: ARG002 - codes know their length
        """Append, and dequantise all of it; the first prompt is read as it came."""
        if self.key is None or self.value is None or self._scales is None:
            self._scales = (_scale(key), _scale(value))
            self.key, self.value = _to_fp8(key, self._scales[0]), _to_fp8(value, self._scales[1])
            return key, value
        self.key = torch.cat([self.key, _to_fp8(key, self._scales[0])], dim=-2)
        self.value = torch.cat([self.value, _to_fp8(value, self._scales[1])], dim=-2)
        return (
            (self.key.float() * self._scales[0]).to(key.dtype),
            (self.value.float() * self._scales[1]).to(value.dtype),
        )

    def tensors(self) -> Iterator[Tensor]:
        """Codes and scales."""
        yield from super().tensors()
        yield from self._scales or ()


def _scale(states: Tensor) -> Tensor:
    largest = torch.finfo(torch.float8_e4m3fn).max
    return (states.abs().amax().float() / largest).clamp(min=torch.finfo(torch.float32).tiny)


def _to_fp8(states: Tensor, scale: Tensor) -> Tensor:
    return (states.float() / scale).to(torch.float8_e4m3fn)
