"""What a word on the command line is, by content."""

from __future__ import annotations

import json
import sys
from pathlib import Path

import pytest

from vramdoc.errors import VramdocError
from vramdoc.examine.target import recognise, recognise_all


def written(path: Path, content: bytes | str) -> str:
    path.write_bytes(content if isinstance(content, bytes) else content.encode())
    return str(path)


SAFETENSORS = (2).to_bytes(8, "little") + b"{}"


@pytest.mark.parametrize(
    ("name", "content", "kind"),
    [
        ("model.safetensors", SAFETENSORS, "model"),
        ("renamed.bin", SAFETENSORS, "model"),
        ("model.safetensors.index.json", '{"weight_map": {}}', "model"),
        ("other.json", '{"metadata": {}, "weight_map": {}}', "model"),
        ("dump.pickle", b"\x80\x04}.", "snapshot"),
        ("dump", b"\x80\x04}.", "snapshot"),
        ("dump.json", json.dumps({"segments": [], "device_traces": []}), "snapshot"),
        ("crash.log", "Traceback (most recent call last):", "crash-text"),
        ("notes", "CUDA out of memory", "crash-text"),
    ],
)
def test_a_file_is_recognised_by_what_is_in_it(
    tmp_path: Path, name: str, content, kind: str
) -> None:
    assert recognise(written(tmp_path / name, content)).kind == kind


def test_folders_are_models_or_recordings_or_refused(tmp_path: Path) -> None:
    for name, kind in (("manifest.json", "recording"), ("config.json", "model-folder")):
        folder = tmp_path / kind
        folder.mkdir()
        written(folder / name, "{}")
        assert recognise(str(folder)).kind == kind
    with pytest.raises(VramdocError, match=r"neither config\.json nor"):
        recognise(str(tmp_path))


def test_several_words_are_a_text_with_its_script_or_ranks_or_a_program(tmp_path: Path) -> None:
    log = written(tmp_path / "crash.log", "CUDA out of memory")
    script = written(tmp_path / "train.py", "import torch")
    ranks = [written(tmp_path / f"rank{n}.pickle", b"\x80\x04}.") for n in range(2)]
    with_script = recognise_all([log, script])
    assert (with_script.kind, with_script.sources) == ("crash-text", (Path(script),))
    several = recognise_all(ranks)
    assert (several.kind, several.paths) == ("snapshots", tuple(map(Path, ranks)))
    for program in (
        ["python", script],
        [sys.executable, script],
        [sys.executable, script, "--lr", "1"],
    ):
        target = recognise_all(program)
        assert (target.kind, target.name) == ("command", "train.py")


def test_a_script_of_the_same_name_belongs_to_the_text(tmp_path: Path) -> None:
    log = written(tmp_path / "crash.log", "CUDA out of memory")
    assert recognise_all([log]).sources == ()
    script = written(tmp_path / "crash.py", "import torch")
    assert recognise_all([log]).sources == (Path(script),)


@pytest.mark.parametrize("content", [b"PK\x03\x04", b"GGUF....", '{"a": 1}'])
def test_what_cannot_be_used_says_what_would_work(tmp_path: Path, content) -> None:
    with pytest.raises(VramdocError) as refused:
        recognise(written(tmp_path / "file.json", content))
    assert refused.value.hint


def test_an_empty_word_is_no_name_for_the_working_folder() -> None:
    with pytest.raises(VramdocError, match="empty word") as caught:
        recognise_all([""])
    assert caught.value.hint == "is a shell variable unset?"
