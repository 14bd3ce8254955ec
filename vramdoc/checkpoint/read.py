"""read_checkpoint: whatever names a model on disk (file, shard index, folder) to one Checkpoint.

It does not know what the tensors are for. What a folder's index names is checked before it is opened: shards lie in
the folder itself, or where a Hugging Face cache keeps them.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from vramdoc.checkpoint.header import read_header
from vramdoc.checkpoint.tensors import Checkpoint, StoredTensor
from vramdoc.errors import UnreadableInput

INDEX_SUFFIX = ".safetensors.index.json"
MAX_JSON_BYTES = 64 << 20
"""No index or config comes near this; a larger file is not one."""


def read_checkpoint(path: Path | str) -> Checkpoint:
    """Read the headers of a ``.safetensors`` file, a ``.safetensors.index.json`` or a Hugging Face folder.

    Raises:
        UnreadableInput: nothing there, or not what it claims to be; one line that says which file and why.
    """
    path = Path(path)
    if path.is_dir():
        return _read(path, _weights_in(path), kind="folder")
    if not path.exists():
        raise UnreadableInput(f"{path} does not exist")
    return _read(path, path, kind="index" if path.name.endswith(INDEX_SUFFIX) else "file")


def _weights_in(folder: Path) -> Path:
    """The one file in ``folder`` that stands for the model, as ``from_pretrained`` would choose it."""
    for name in ("model.safetensors", "model" + INDEX_SUFFIX):
        if (folder / name).exists():
            return folder / name
    found = sorted(folder.glob("*" + INDEX_SUFFIX)) or sorted(folder.glob("*.safetensors"))
    if len(found) == 1:
        return found[0]
    if found:
        names = ", ".join(file.name for file in found[:4])
        raise UnreadableInput(
            f"{folder.name} holds several models ({names})", "name the file that you mean"
        )
    hint = "pickled weights are not opened; save the model with save_pretrained(..., safe_serialization=True)"
    pickled = any(folder.glob("*.bin")) or any(folder.glob("*.pt"))
    raise UnreadableInput(f"{folder.name} holds no .safetensors file", hint if pickled else "")


def _read(path: Path, weights: Path, *, kind: str) -> Checkpoint:
    metadata: dict[str, str] = {}
    if weights.name.endswith(INDEX_SUFFIX):
        tensors = _read_shards(weights)
    else:
        tensors, metadata = read_header(weights)
    if not tensors:
        raise UnreadableInput(f"{weights.name} holds no tensors")
    config = weights.parent / "config.json"
    return Checkpoint(
        path=path,
        kind=kind,
        tensors={tensor.name: tensor for tensor in tensors},
        config=read_json_object(config) if config.is_file() else None,
        metadata=metadata,
    )


def _read_shards(index: Path) -> list[StoredTensor]:
    weight_map = read_json_object(index).get("weight_map")
    if not isinstance(weight_map, dict) or not weight_map:
        raise UnreadableInput(f"{index.name} has no weight_map", "download the index again")
    tensors: list[StoredTensor] = []
    for name in sorted({str(name) for name in weight_map.values()}):
        shard, _ = read_header(_shard_path(index, name))
        tensors += [tensor for tensor in shard if weight_map.get(tensor.name) == name]
    missing = sorted(weight_map.keys() - {tensor.name for tensor in tensors})
    if missing:
        raise UnreadableInput(
            f"{index.name} names {missing[0][:120]!r} in {weight_map[missing[0]]!r}, which does not hold it",
            "the index and the shards are of different models; download them together",
        )
    return tensors


def _shard_path(index: Path, name: str) -> Path:
    """Where shard ``name`` lies.

    Raises:
        UnreadableInput: the name leaves the index's folder, by its text or by a link. A Hugging Face cache is the one
            exception: its ``snapshots/<revision>/`` holds links into its own ``blobs/``.
    """
    folder = index.parent
    if Path(name).name != name or name in {"", ".", ".."} or "\\" in name:
        raise UnreadableInput(f"{index.name} points outside its folder: {name[:120]!r}")
    path = folder / name
    if path.is_symlink():
        revision = folder.resolve()
        blobs = revision.parent.parent / "blobs"
        if revision.parent.name != "snapshots" or path.resolve().parent != blobs:
            raise UnreadableInput(
                f"{index.name} points at a link: {name[:120]!r}", "put the shard itself there"
            )
    if not path.is_file():
        raise UnreadableInput(
            f"{index.name} names {name[:120]!r}, which is not there", "download all shards"
        )
    return path


def read_json_object(path: Path) -> dict[str, Any]:
    """A JSON file that holds one object.

    Raises:
        UnreadableInput: it cannot be read, is not JSON, or holds something else.
    """
    try:
        if path.stat().st_size > MAX_JSON_BYTES:
            raise UnreadableInput(f"{path.name} is too large to be an index or a config")
        value = json.loads(path.read_bytes())
    except OSError as error:
        raise UnreadableInput(f"{path.name} cannot be read: {error.strerror or error}") from error
    except (ValueError, RecursionError) as error:
        raise UnreadableInput(f"{path.name} is not valid JSON") from error
    if not isinstance(value, dict):
        raise UnreadableInput(f"{path.name} does not hold a JSON object")
    return value
