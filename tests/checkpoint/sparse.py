"""Model files for tests: a correct header over no bytes, or a header that lies on purpose."""

import json
from collections.abc import Mapping
from math import prod
from pathlib import Path
from typing import Any

from vramdoc.checkpoint.tensors import DTYPE_BITS

Tensors = Mapping[str, tuple[str, tuple[int, ...]]]
"""Name to (safetensors type, shape)."""


def header_of(tensors: Tensors) -> dict[str, Any]:
    """The header that fits ``tensors``, in their order."""
    header, position = {}, 0
    for name, (dtype, shape) in tensors.items():
        end = position + prod(shape) * DTYPE_BITS[dtype] // 8
        header[name] = {"dtype": dtype, "shape": list(shape), "data_offsets": [position, end]}
        position = end
    return header


def write_sparse(path: Path, tensors: Tensors, contents: Mapping[str, bytes] | None = None) -> Path:
    """A sparse file of ``tensors``; a few of them may have ``contents``."""
    header = header_of(tensors)
    text = json.dumps(header).encode()
    end = max((entry["data_offsets"][1] for entry in header.values()), default=0)
    with path.open("wb") as stream:
        stream.write(len(text).to_bytes(8, "little") + text)
        stream.truncate(8 + len(text) + end)
        for name, data in (contents or {}).items():
            stream.seek(8 + len(text) + header[name]["data_offsets"][0])
            stream.write(data)
    return path


def write_raw(path: Path, header: object, data_bytes: int) -> Path:
    """Any header before ``data_bytes`` of nothing."""
    text = header if isinstance(header, bytes) else json.dumps(header).encode()
    path.write_bytes(len(text).to_bytes(8, "little") + text + bytes(data_bytes))
    return path


def linear_tensors(shapes: Mapping[str, tuple[int, ...]], dtype: str = "BF16") -> Tensors:
    """All of one type."""
    return {name: (dtype, shape) for name, shape in shapes.items()}
