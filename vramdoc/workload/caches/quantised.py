"""Quantised caches: codes of 8 or 4 bits with one scale a group, and a residual of recent tokens in full precision.

The scheme of transformers 5.24's ``QuantizedLayer`` (KIVI's): every step dequantises the whole layer and concatenates;
once ``RESIDUAL`` recent tokens have gathered, everything is quantised again. The codes here are symmetric and made by
plain torch operations, so their transients are those of an implementation without a kernel of its own.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import torch
from torch import Tensor

RESIDUAL = 128
GROUP = 64
"""Elements that share a scale (``residual_length`` and ``q_group_size`` of transformers 5.24)."""


@dataclass(frozen=True, slots=True)
class _Codes:
    codes: Tensor
    scales: Tensor
    shape: tuple[int, ...]
    bits: int

    @classmethod
    def of(cls, states: Tensor, bits: int) -> _Codes:
        group = GROUP if states.shape[-1] % GROUP == 0 else states.shape[-1]
        grouped = states.reshape(*states.shape[:-1], -1, group)
        top = 2 ** (bits - 1) - 1
        scales = (grouped.abs().amax(-1, keepdim=True) / top).clamp_min(1e-8)
        codes = (grouped / scales).round().to(torch.int8)
        if bits == 4:
            codes = (codes[..., ::2] & 0xF) | (codes[..., 1::2] << 4)
        return cls(codes, scales, tuple(states.shape), bits)

    def states(self) -> Tensor:
        codes = self.codes
        if self.bits == 4:
            # an arithmetic shift brings the sign back
            codes = torch.stack(((codes << 4) >> 4, codes >> 4), dim=-1).flatten(-2)
        return (codes.to(self.scales.dtype) * self.scales).reshape(self.shape)


class Quantised:
    """One layer, keys and values alike."""

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
        """Codes, scales and the residual."""
        for codes in (self._key, self._value):
            if codes is not None:
                yield codes.codes
                yield codes.scales
        yield from self._recent or ()

    def close(self) -> None:
        """Nothing is shared."""
