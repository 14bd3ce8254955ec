"""Stored tensors onto the device, one by one in the file's order, as safetensors' ``load_file(device="cuda")`` does.

The file is mapped, not read: the copy to the device is what reads it. On a virtual GPU that copy does nothing, so a
file of any size costs no host memory. It does not know what the tensors are for.
"""

from __future__ import annotations

import mmap
import warnings
from collections.abc import Collection, Iterator, Mapping
from pathlib import Path

import torch

from vramdoc.checkpoint import Checkpoint, StoredTensor
from vramdoc.errors import UsageError

TORCH_NAMES: Mapping[str, str] = {
    "BOOL": "bool", "U8": "uint8", "I8": "int8", "U16": "uint16", "I16": "int16", "U32": "uint32", "I32": "int32",
    "U64": "uint64", "I64": "int64", "F16": "float16", "BF16": "bfloat16", "F32": "float32", "F64": "float64",
    "C64": "complex64", "F8_E5M2": "float8_e5m2", "F8_E4M3": "float8_e4m3fn", "F8_E8M0": "float8_e8m0fnu",
    "F8_E4M3FNUZ": "float8_e4m3fnuz", "F8_E5M2FNUZ": "float8_e5m2fnuz",
}  # fmt: skip
"""safetensors' type names to torch's; types that are missing here or in this torch are kept as raw bytes."""


def torch_dtype(name: str) -> torch.dtype | None:
    """The type of torch for safetensors' ``name``, or None where this torch has none."""
    found = getattr(torch, TORCH_NAMES.get(name, ""), None)
    return found if isinstance(found, torch.dtype) else None


COMPUTATION_TYPES = ("float32", "float16", "bfloat16", "float64")


def asked_dtype(name: str) -> torch.dtype | None:
    """The type that ``--dtype`` names, or None where the checkpoint's own is meant.

    Raises:
        UsageError: no such type.
    """
    if not name:
        return None
    if name not in COMPUTATION_TYPES:
        raise UsageError(f"unknown dtype {name!r}", f"choose from {', '.join(COMPUTATION_TYPES)}")
    return getattr(torch, name)


def load_weights(
    checkpoint: Checkpoint,
    *,
    names: Collection[str] | None = None,
    device: str = "cuda",
    cast: torch.dtype | None = None,
) -> Iterator[tuple[str, torch.Tensor]]:
    """Yield ``(name, tensor on the device)``, of ``names`` or of all; floating-point ones cast on the device if asked."""
    mapped: tuple[Path, mmap.mmap] | None = None
    with warnings.catch_warnings():
        # a read-only mapping is what we want: nothing writes to it
        warnings.filterwarnings("ignore", message="The given buffer is not writable")
        for stored in checkpoint.tensors.values():
            if names is not None and stored.name not in names:
                continue
            if mapped is None or mapped[0] != stored.file:
                with stored.file.open("rb") as stream:
                    mapped = (stored.file, mmap.mmap(stream.fileno(), 0, access=mmap.ACCESS_READ))
            tensor = _to_device(stored, mapped[1], device)
            if cast is not None and tensor.is_floating_point() and tensor.element_size() >= 2:
                tensor = tensor.to(cast)
            yield stored.name, tensor


def _to_device(stored: StoredTensor, mapped: mmap.mmap, device: str) -> torch.Tensor:
    dtype = torch_dtype(stored.dtype)
    shape = stored.shape
    if dtype is None:
        dtype, shape = torch.uint8, (stored.nbytes,)
    tensor = torch.empty(shape, dtype=dtype, device=device)
    if stored.nbytes:
        count = stored.nbytes // dtype.itemsize
        tensor.copy_(
            torch.frombuffer(mapped, dtype=dtype, count=count, offset=stored.offset).view(shape)
        )
    return tensor
