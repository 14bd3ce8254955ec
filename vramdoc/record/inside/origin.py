"""Where the memory of a tensor's storage comes from: what torch does not own, it cannot resize."""

from __future__ import annotations

import sys
from bisect import bisect_right
from collections.abc import Iterable
from pathlib import Path
from types import FrameType
from typing import Any

import torch

from vramdoc.record.inside.user_line import named_values

_MAPS = Path("/proc/self/maps")


def origin_of(storage: torch.UntypedStorage, frames: Iterable[FrameType | None]) -> dict[str, Any]:
    """``kind`` (``file``, ``shared``, ``numpy``, ``checkpoint``, ``pinned``, ``foreign`` or ``torch``) and, where known, ``path`` or ``name``.

    The address is looked up in the process's map of files first, then among the NumPy arrays that ``frames`` know.
    """
    address = storage.data_ptr()
    if storage.device.type != "cpu":
        return {"kind": "torch" if storage.resizable() else "foreign"}
    path = _mapped_file(address)
    if storage.is_shared() or (path and path.startswith("/dev/shm/")):  # noqa: S108 # Linux's name for it
        return {"kind": "shared"}
    if path:
        return {"kind": "file", "path": path}
    if storage.resizable():
        return {"kind": "torch"}
    array = _array_at(address, frames)
    if array:
        return {"kind": "numpy", "name": array}
    loaded = checkpoint_at(address)
    if loaded:
        return {"kind": "checkpoint", "path": loaded}
    return {"kind": "pinned" if _is_pinned(storage) else "foreign"}


def _mapped_file(address: int) -> str:
    """The file that is mapped at ``address``; empty for anonymous memory, and where there is no such map to read."""
    try:
        lines = _MAPS.read_text(encoding="utf-8", errors="surrogateescape").splitlines()
    except OSError:
        return ""
    for line in lines:
        fields = line.split(maxsplit=5)
        start, _, end = fields[0].partition("-")
        if int(start, 16) <= address < int(end, 16):
            path = fields[5] if len(fields) > 5 else ""
            return path.removesuffix(" (deleted)") if path.startswith("/") else ""
    return ""


def _array_at(address: int, frames: Iterable[FrameType | None]) -> str:
    numpy = sys.modules.get("numpy")
    if numpy is None:
        return ""
    for frame in frames:
        for name, value in named_values(frame):
            if isinstance(value, numpy.ndarray):
                start = value.__array_interface__["data"][0]
                if start <= address < start + max(value.nbytes, 1):
                    return name
    return ""


_loaded_at: list[tuple[int, int, str]] = []
"""Start, end and file of storages that ``torch.load`` made, sorted; their memory may be gone by now, so it is asked last."""


def remember_loaded(result: Any, path: str) -> None:
    """Keep where the tensors of a checkpoint lie. Nested dicts, lists and tuples are followed."""
    waiting = [result]
    while waiting:
        value = waiting.pop()
        if isinstance(value, dict):
            waiting += value.values()
        elif isinstance(value, list | tuple):
            waiting += value
        elif isinstance(value, torch.Tensor) and value.device.type == "cpu":
            storage = value.untyped_storage()
            _loaded_at.append((storage.data_ptr(), storage.data_ptr() + storage.nbytes(), path))
    _loaded_at.sort()


def checkpoint_at(address: int) -> str:
    """The checkpoint file whose tensor lay at ``address``, empty for none."""
    index = bisect_right(_loaded_at, (address, sys.maxsize, "")) - 1
    if index >= 0 and _loaded_at[index][0] <= address < max(
        _loaded_at[index][1], _loaded_at[index][0] + 1
    ):
        return _loaded_at[index][2]
    return ""


def _is_pinned(storage: torch.UntypedStorage) -> bool:
    return bool(torch.cuda.is_initialized() and storage.is_pinned())
