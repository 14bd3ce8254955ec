"""Checkpoint: the names, types, shapes and places of the tensors in a model file; never their values.

It does not know what the tensors are for (``infer``) nor how the file is laid out (``header``).
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from math import prod
from pathlib import Path
from typing import Any

DTYPE_BITS: Mapping[str, int] = {
    "BOOL": 8, "U8": 8, "I8": 8, "U16": 16, "I16": 16, "U32": 32, "I32": 32, "U64": 64, "I64": 64,
    "F4": 4, "F6_E2M3": 6, "F6_E3M2": 6, "F8_E5M2": 8, "F8_E4M3": 8, "F8_E8M0": 8, "F8_E4M3FNUZ": 8,
    "F8_E5M2FNUZ": 8, "F16": 16, "BF16": 16, "F32": 32, "F64": 64, "C64": 64,
}  # fmt: skip
"""Element sizes by safetensors' type names (safetensors 0.8, ``Dtype::bitsize``)."""

FLOATING = frozenset({"F16", "BF16", "F32", "F64"})
"""Types that a model computes in; the 8-bit floats are only storage."""


@dataclass(frozen=True, slots=True, kw_only=True)
class StoredTensor:
    """One tensor of a file: ``offset`` is counted from the start of ``file``."""

    name: str
    dtype: str
    shape: tuple[int, ...]
    file: Path
    offset: int
    nbytes: int

    @property
    def elements(self) -> int:
        """How many numbers it holds."""
        return prod(self.shape)

    def read(self, limit: int = 4096) -> bytes:
        """The first ``limit`` stored bytes: for the few tensors that describe others (a quantisation's own JSON)."""
        with self.file.open("rb") as stream:
            stream.seek(self.offset)
            return stream.read(min(limit, self.nbytes))


@dataclass(frozen=True, slots=True, kw_only=True)
class Checkpoint:
    """A model on disk. ``tensors`` stand in the order in which a loader meets them: by file, then by offset."""

    path: Path
    kind: str
    """``"file"``, ``"index"`` or ``"folder"``."""
    tensors: Mapping[str, StoredTensor]
    config: Mapping[str, Any] | None = None
    """``config.json`` beside the weights, if there is one."""
    metadata: Mapping[str, str] = field(default_factory=dict)

    @property
    def weight_bytes(self) -> int:
        """Bytes of all stored tensors."""
        return sum(tensor.nbytes for tensor in self.tensors.values())

    @property
    def folder(self) -> Path:
        """Where the weights and their ``config.json`` lie."""
        return self.path if self.path.is_dir() else self.path.parent

    def bytes_by_dtype(self) -> dict[str, int]:
        """Stored bytes of each type, largest first."""
        totals: dict[str, int] = {}
        for tensor in self.tensors.values():
            totals[tensor.dtype] = totals.get(tensor.dtype, 0) + tensor.nbytes
        return dict(sorted(totals.items(), key=lambda item: (-item[1], item[0])))

    @property
    def floating_dtype(self) -> str:
        """The type that most floating-point bytes are stored in; ``"F16"`` when there are none.

        A quantised file stores its scales in the type that the layers compute in.
        """
        return next((dtype for dtype in self.bytes_by_dtype() if dtype in FLOATING), "F16")
