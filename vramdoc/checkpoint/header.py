"""The header of a safetensors file: read, checked against itself and against the file's size, and nothing more.

A file of any size costs its header only. The format, and the checks that safetensors' own reader makes
(``SafeTensors::read_metadata`` in safetensors 0.8), are followed; the messages are ours, because a person has
to see which tensor is wrong and what to do. It does not know what the tensors mean.
"""

from __future__ import annotations

import json
from collections.abc import Iterable
from pathlib import Path
from typing import Any

from vramdoc.checkpoint.tensors import DTYPE_BITS, StoredTensor
from vramdoc.errors import UnreadableInput

MAX_HEADER_BYTES = 100_000_000
"""``MAX_HEADER_SIZE`` in safetensors: a longer header is refused by every reader."""

_RECOPY = "copy or download the file again"


def read_header(path: Path) -> tuple[list[StoredTensor], dict[str, str]]:
    """The tensors of ``path`` in the order of their bytes, and the file's own metadata.

    Raises:
        UnreadableInput: the file is missing, empty, truncated, not safetensors, or its header contradicts itself or
            the file's size.
    """
    try:
        size = path.stat().st_size
        with path.open("rb") as stream:
            prefix = stream.read(8)
            length = int.from_bytes(prefix, "little")
            _check_prefix(path, prefix, length, size)
            text = stream.read(length)
    except OSError as error:
        raise UnreadableInput(f"{path.name} cannot be read: {error.strerror or error}") from error
    entries = _parse(path, text)
    metadata = entries.pop("__metadata__", {})
    if not isinstance(metadata, dict):
        raise UnreadableInput(
            f"{path.name} has a header whose __metadata__ is not a table", _RECOPY
        )
    start = 8 + length
    tensors = [_tensor(path, name, entry, start) for name, entry in entries.items()]
    tensors.sort(key=lambda tensor: (tensor.offset, tensor.nbytes, tensor.name))
    _check_cover(path, tensors, start, size)
    return tensors, {str(key): str(value) for key, value in metadata.items()}


def _check_prefix(path: Path, prefix: bytes, length: int, size: int) -> None:
    if size == 0:
        raise UnreadableInput(f"{path.name} is empty", _RECOPY)
    if prefix.startswith(b"version "):
        raise UnreadableInput(
            f"{path.name} is a Git LFS pointer, not the model",
            "fetch the real file with: git lfs pull",
        )
    if size < 8 or length > MAX_HEADER_BYTES:
        raise UnreadableInput(
            f"{path.name} is not a safetensors file",
            "a model is read from .safetensors; convert it first",
        )
    if 8 + length > size:
        raise UnreadableInput(
            f"{path.name} is truncated: its header alone needs {8 + length:,} bytes and the file has {size:,}",
            _RECOPY,
        )


def _parse(path: Path, text: bytes) -> dict[str, Any]:
    if not text.startswith(b"{"):
        raise UnreadableInput(
            f"{path.name} is not a safetensors file",
            "a model is read from .safetensors; convert it first",
        )
    try:
        entries = json.loads(text, object_pairs_hook=_without_repeats)
    except (ValueError, RecursionError) as error:
        raise UnreadableInput(
            f"{path.name} has a header that is not valid JSON ({_first_line(error)})", _RECOPY
        ) from error
    assert isinstance(entries, dict)  # it starts with a brace
    return entries


def _first_line(error: Exception) -> str:
    return str(error).splitlines()[0][:120] if str(error) else type(error).__name__


def _without_repeats(pairs: Iterable[tuple[str, Any]]) -> dict[str, Any]:
    table: dict[str, Any] = {}
    for key, value in pairs:
        if key in table:
            raise ValueError(f"{key[:80]!r} appears twice")
        table[key] = value
    return table


def _is_count(value: object) -> bool:
    return isinstance(value, int) and not isinstance(value, bool) and 0 <= value < 1 << 63


def _tensor(path: Path, name: str, entry: object, start: int) -> StoredTensor:
    def refuse(what: str) -> UnreadableInput:
        return UnreadableInput(
            f"{path.name} has a lying header: tensor {name[:120]!r} {what}", _RECOPY
        )

    if not isinstance(entry, dict):
        raise refuse("is not described by a table")
    dtype, shape, offsets = entry.get("dtype"), entry.get("shape"), entry.get("data_offsets")
    if not isinstance(dtype, str) or dtype not in DTYPE_BITS:
        raise refuse(f"has the unknown type {str(dtype)[:40]!r}")
    if not isinstance(shape, list) or not all(map(_is_count, shape)):
        raise refuse("has a shape that is not a list of sizes")
    if not isinstance(offsets, list) or len(offsets) != 2 or not all(map(_is_count, offsets)):
        raise refuse("has offsets that are not two positions")
    begin, end = offsets
    tensor = StoredTensor(
        name=name,
        dtype=dtype,
        shape=tuple(shape),
        file=path,
        offset=start + begin,
        nbytes=end - begin,
    )
    if tensor.nbytes * 8 != tensor.elements * DTYPE_BITS[dtype]:
        raise refuse(
            f"is {dtype}{shape} and so needs {tensor.elements * DTYPE_BITS[dtype] // 8:,} bytes, "
            f"but its offsets give it {end - begin:,}"
        )
    return tensor


def _check_cover(path: Path, tensors: list[StoredTensor], start: int, size: int) -> None:
    position = start
    for tensor in tensors:
        if tensor.offset != position:
            fault = (
                "overlaps the one before" if tensor.offset < position else "leaves a gap before it"
            )
            raise UnreadableInput(
                f"{path.name} has a lying header: tensor {tensor.name[:120]!r} {fault}", _RECOPY
            )
        position += tensor.nbytes
    if position > size:
        raise UnreadableInput(
            f"{path.name} is truncated: its tensors need {position:,} bytes and the file has {size:,}",
            _RECOPY,
        )
    if position < size:
        raise UnreadableInput(
            f"{path.name} has {size - position:,} bytes that no tensor in its header owns", _RECOPY
        )
