"""read_checkpoint: a file, an index, a folder; and nothing outside the folder."""

import json
from pathlib import Path

import pytest

from tests.checkpoint.sparse import write_sparse
from vramdoc.checkpoint import read_checkpoint
from vramdoc.errors import UnreadableInput

ONE = {"a": ("BF16", (4, 4))}
TWO = {"b": ("F32", (2,))}


def write_index(folder: Path, weight_map: object) -> Path:
    path = folder / "model.safetensors.index.json"
    path.write_text(json.dumps({"weight_map": weight_map}))
    return path


def test_index_unites_its_shards(tmp_path: Path) -> None:
    write_sparse(tmp_path / "model-1.safetensors", ONE)
    write_sparse(tmp_path / "model-2.safetensors", TWO)
    index = write_index(tmp_path, {"a": "model-1.safetensors", "b": "model-2.safetensors"})
    for target in (index, tmp_path):
        checkpoint = read_checkpoint(target)
        assert list(checkpoint.tensors) == ["a", "b"]
        assert checkpoint.weight_bytes == 40
        assert checkpoint.bytes_by_dtype() == {"BF16": 32, "F32": 8}
    assert read_checkpoint(tmp_path).kind == "folder"


def test_config_beside_the_weights_comes_with_them(tmp_path: Path) -> None:
    path = write_sparse(tmp_path / "model.safetensors", ONE)
    assert read_checkpoint(path).config is None
    (tmp_path / "config.json").write_text('{"model_type": "llama"}')
    assert read_checkpoint(path).config == {"model_type": "llama"}


@pytest.mark.parametrize(
    "name", ["../secret.safetensors", "/etc/passwd", "sub/x.safetensors", "..", "", "a\\b"]
)
def test_index_that_leaves_its_folder_is_refused(tmp_path: Path, name: str) -> None:
    folder = tmp_path / "model"
    folder.mkdir()
    write_sparse(tmp_path / "secret.safetensors", ONE)
    with pytest.raises(UnreadableInput, match="points outside its folder"):
        read_checkpoint(write_index(folder, {"a": name}))


def test_index_that_points_at_a_link_is_refused(tmp_path: Path) -> None:
    folder = tmp_path / "model"
    folder.mkdir()
    (folder / "shard.safetensors").symlink_to(write_sparse(tmp_path / "secret.safetensors", ONE))
    with pytest.raises(UnreadableInput, match="points at a link"):
        read_checkpoint(write_index(folder, {"a": "shard.safetensors"}))


def test_links_of_a_hugging_face_cache_are_followed(tmp_path: Path) -> None:
    blobs, snapshot = tmp_path / "blobs", tmp_path / "snapshots" / "0123abcd"
    blobs.mkdir()
    snapshot.mkdir(parents=True)
    write_sparse(blobs / "deadbeef", ONE)
    (snapshot / "shard.safetensors").symlink_to(Path("../../blobs/deadbeef"))
    assert list(read_checkpoint(write_index(snapshot, {"a": "shard.safetensors"})).tensors) == ["a"]


def test_index_and_shards_must_agree(tmp_path: Path) -> None:
    write_sparse(tmp_path / "shard.safetensors", ONE)
    with pytest.raises(UnreadableInput, match="does not hold it"):
        read_checkpoint(write_index(tmp_path, {"z": "shard.safetensors"}))
    with pytest.raises(UnreadableInput, match="not there"):
        read_checkpoint(write_index(tmp_path, {"a": "gone.safetensors"}))
    with pytest.raises(UnreadableInput, match="no weight_map"):
        read_checkpoint(write_index(tmp_path, []))


def test_folders_that_are_no_model_say_why(tmp_path: Path) -> None:
    with pytest.raises(UnreadableInput, match=r"holds no \.safetensors"):
        read_checkpoint(tmp_path)
    (tmp_path / "pytorch_model.bin").write_bytes(b"x")
    with pytest.raises(UnreadableInput, match="save_pretrained"):
        read_checkpoint(tmp_path)
    for name in ("x", "y"):
        write_sparse(tmp_path / f"{name}.safetensors", ONE)
    with pytest.raises(UnreadableInput, match="several models"):
        read_checkpoint(tmp_path)


@pytest.mark.parametrize(
    "text",
    ["[1]", "{", "null", "\x00", '{"a":' * 100_000],
    ids=["a list", "cut off", "null", "a NUL", "absurd depth"],
)
@pytest.mark.parametrize("name", ["config.json", "model.safetensors.index.json"])
def test_json_that_is_no_object_is_refused(tmp_path: Path, name: str, text: str) -> None:
    write_sparse(tmp_path / "model.safetensors", ONE)
    (tmp_path / name).write_text(text)
    with pytest.raises(UnreadableInput, match=name):
        read_checkpoint(tmp_path / (name if "index" in name else "model.safetensors"))


def test_missing_and_empty_models_are_refused(tmp_path: Path) -> None:
    with pytest.raises(UnreadableInput, match="does not exist"):
        read_checkpoint(tmp_path / "nothing.safetensors")
    with pytest.raises(UnreadableInput, match="holds no tensors"):
        read_checkpoint(write_sparse(tmp_path / "m.safetensors", {}))
