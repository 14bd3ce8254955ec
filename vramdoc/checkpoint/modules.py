"""Stored tensors to modules and projections: what one matrix product owns, however its weight is quantised.

The rules are those of the formats themselves: GPTQ and AWQ (AutoGPTQ, AutoAWQ), bitsandbytes' ``quant_state``,
compressed-tensors' ``weight_packed``, transformers' ``Conv1D``. It does not know what a projection is for.
"""

from __future__ import annotations

import json
import re
import struct
from collections.abc import Mapping

from vramdoc.checkpoint.shape import Norm, Projection, Storage
from vramdoc.checkpoint.tensors import StoredTensor

Parts = Mapping[str, StoredTensor]
"""The tensors of one module by their last name: ``{"weight": ..., "bias": ...}``."""
Modules = dict[str, dict[str, StoredTensor]]

_PART = re.compile(
    r"(?:(?P<module>.+?)\.)?(?P<part>weight\.(?:absmax|quant_map|nested_absmax|nested_quant_map|quant_state\..+)|[^.]+)\Z"
)
_FLOAT8 = ("F8_E4M3", "F8_E5M2", "F8_E4M3FNUZ", "F8_E5M2FNUZ")


def group_modules(tensors: Mapping[str, StoredTensor]) -> Modules:
    """Group ``{name: tensor}`` by module path; the keys of the inner tables are parameter names."""
    modules: Modules = {}
    for name, tensor in tensors.items():
        match = _PART.match(name)
        if match is not None:
            modules.setdefault(match["module"] or "", {})[match["part"]] = tensor
    return modules


def norm(parts: Parts | None) -> Norm | None:
    """A normalisation: a 1-D ``weight``, perhaps a ``bias``."""
    weight = (parts or {}).get("weight")
    if parts is None or weight is None or len(weight.shape) != 1:
        return None
    bias = parts.get("bias")
    return Norm(weight=weight.name, bias=bias.name if bias else None, width=weight.shape[0])


def projection(name: str, parts: Parts | None) -> Projection | None:
    """The matrix product that ``parts`` hold, or None if they hold none or its size cannot be told."""
    if not parts:
        return None
    for rule in (_packed_by_row, _compressed, _bits_and_bytes, _plain):
        found = rule(parts)
        if found is not None:
            storage, inputs, outputs, weight = found
            owned = [weight.name, *sorted(t.name for t in parts.values() if t is not weight)]
            bias = parts.get("bias")
            return Projection(
                name=name, storage=storage, inputs=inputs, outputs=outputs, tensors=tuple(owned),
                bias=bias.name if bias else None,
            )  # fmt: skip
    return None


_Found = tuple[Storage, int, int, StoredTensor]


def _packed_by_row(parts: Parts) -> _Found | None:
    """GPTQ ``qweight [in/pack, out]`` and AWQ ``qweight [in, out/pack]``; ``scales``' last dimension is ``out`` in both."""
    weight, scales, zeros = parts.get("qweight"), parts.get("scales"), parts.get("qzeros")
    if weight is None or scales is None or len(weight.shape) != 2 or not scales.shape:
        return None
    outputs = scales.shape[-1]
    if weight.shape[1] != outputs:
        return Storage.AWQ, weight.shape[0], outputs, weight
    if "g_idx" in parts:
        return Storage.GPTQ, parts["g_idx"].elements, outputs, weight
    pack = (
        outputs // zeros.shape[-1] if zeros is not None and zeros.shape and zeros.shape[-1] else 8
    )
    return Storage.GPTQ, weight.shape[0] * pack, outputs, weight


def _compressed(parts: Parts) -> _Found | None:
    weight, shape = parts.get("weight_packed"), parts.get("weight_shape")
    if weight is None or shape is None or shape.elements != 2 or shape.dtype not in {"I64", "I32"}:
        return None
    data = shape.read()
    if len(data) != shape.nbytes:
        return None
    outputs, inputs = struct.unpack("<2q" if shape.dtype == "I64" else "<2i", data)
    return (Storage.PACKED, inputs, outputs, weight) if inputs > 0 < outputs else None


def _bits_and_bytes(parts: Parts) -> _Found | None:
    """4-bit weights are flat; their shape stands in the JSON of ``quant_state``. 8-bit ones come with ``SCB [out]``."""
    weight = parts.get("weight")
    if weight is None:
        return None
    if "SCB" in parts and len(weight.shape) == 2:
        return Storage.INT8, weight.shape[1], weight.shape[0], weight
    state = next(
        (tensor for part, tensor in parts.items() if part.startswith("weight.quant_state.")), None
    )
    if state is None:
        return None
    try:
        outputs, inputs = json.loads(state.read())["shape"]
    except (ValueError, KeyError, TypeError, RecursionError):
        return None
    sizes = all(isinstance(size, int) and size > 0 for size in (inputs, outputs))
    return (Storage.INT4, inputs, outputs, weight) if sizes else None


def _plain(parts: Parts) -> _Found | None:
    weight, bias = parts.get("weight"), parts.get("bias")
    if weight is None or len(weight.shape) != 2:
        return None
    first, second = weight.shape
    if weight.dtype in _FLOAT8:
        return Storage.FP8, second, first, weight
    # Conv1D is transposed; only a bias can tell, and a square weight costs the same either way.
    if bias is not None and bias.shape == (second,) and first != second:
        return Storage.CONV1D, first, second, weight
    return Storage.LINEAR, second, first, weight
