"""Bad input gets one line on stderr, exit 2, nothing on stdout and no traceback."""

from __future__ import annotations

import json
import pickle
import subprocess
import sys
from pathlib import Path

import pytest


class Evil:
    def __reduce__(self):
        return (print, ("this must never run",))


def lying_safetensors(path: Path) -> Path:
    header = json.dumps({"w": {"dtype": "F32", "shape": [4], "data_offsets": [0, 999]}}).encode()
    path.write_bytes(len(header).to_bytes(8, "little") + header + b"\0" * 16)
    return path


def make(kind: str, folder: Path) -> Path:
    path = folder / f"{kind}.input"
    if kind == "missing":
        return path
    if kind == "empty":
        path.write_bytes(b"")
    elif kind == "empty-safetensors":
        path = folder / "model.safetensors"
        path.write_bytes(b"")
    elif kind == "truncated-safetensors":
        path = folder / "model.safetensors"
        path.write_bytes((1000).to_bytes(8, "little") + b'{"w":')
    elif kind == "lying-safetensors":
        path = lying_safetensors(folder / "model.safetensors")
    elif kind == "pickle-with-code":
        path = folder / "snapshot.pickle"
        path.write_bytes(pickle.dumps(Evil()))
    elif kind == "truncated-pickle":
        path = folder / "snapshot.pickle"
        path.write_bytes(pickle.dumps({"segments": [], "device_traces": []})[:-5])
    elif kind == "zip-checkpoint":
        path = folder / "model.pt"
        path.write_bytes(b"PK\x03\x04 not opened")
    elif kind == "folder-of-nothing":
        path = folder / "nothing"
        path.mkdir()
    return path


KINDS = (
    "missing", "empty", "empty-safetensors", "truncated-safetensors", "lying-safetensors", "pickle-with-code",
    "truncated-pickle", "zip-checkpoint", "folder-of-nothing",
)  # fmt: skip


@pytest.mark.parametrize("kind", KINDS)
def test_a_target_that_cannot_be_used_gets_one_line_and_exit_2(
    kind: str, vramdoc, tmp_path: Path
) -> None:
    target = make(kind, tmp_path)
    done = vramdoc("diagnose", target, "--gpu", "rtx4090")
    assert done.returncode == 2, done
    assert done.stdout == ""
    assert len(done.stderr.strip().splitlines()) == 1, done.stderr
    assert "Traceback" not in done.stderr
    assert "this must never run" not in done.stderr + done.stdout
    assert not (tmp_path / ".vramdoc").exists(), "nothing half-written is left"


@pytest.mark.parametrize(
    "arguments",
    [
        ("--gpu", "rtx4909"),
        ("--gpu", "-3GiB"),
        ("--alloc-conf", "max_split_size:64"),
        ("--alloc-conf", "max_split_size_mb:5"),
        ("--alloc-conf", "expandable_segments=True"),
        ("--context", "many"),
        ("--sessions", "0"),
        ("--workload", "dance"),
        ("--cache", "frozen"),
        ("--fail-on", "never"),
        ("--format", "word"),
        ("--foreign", "lots"),
        ("--report", "no/such/folder/report.md"),
    ],
)
def test_an_option_that_cannot_be_used_is_refused_before_any_child_starts(
    arguments: tuple[str, ...], vramdoc, tiny_model: Path, tmp_path: Path
) -> None:
    done = vramdoc("diagnose", tiny_model, "--gpu", "rtx4090", *arguments)
    assert done.returncode == 2, done
    assert done.stdout == ""
    assert len(done.stderr.strip().splitlines()) == 1, done.stderr
    assert not (tmp_path / ".vramdoc").exists()


def test_an_error_is_json_on_stderr_when_json_was_asked_for(vramdoc) -> None:
    done = vramdoc("diagnose", "nowhere.safetensors", "--json")
    assert done.returncode == 2
    assert json.loads(done.stderr)["error"]["message"] == "nowhere.safetensors does not exist"


def test_debug_shows_the_traceback(vramdoc) -> None:
    assert "Traceback" in vramdoc("--debug", "diagnose", "nowhere.safetensors").stderr


def test_an_existing_report_is_not_overwritten_without_force(vramdoc, tmp_path: Path) -> None:
    report = tmp_path / "report.md"
    report.write_text("mine")
    text = tmp_path / "crash.log"
    text.write_text("RuntimeError: CUDA error: out of memory\n")
    assert vramdoc("diagnose", text, "--report", report).returncode == 2
    assert report.read_text() == "mine"
    assert vramdoc("diagnose", text, "--report", report, "--force").returncode in {1, 3}
    assert report.read_text() != "mine"


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="a full disk that a test can write to")
def test_output_onto_a_full_disk_is_one_line_and_no_finding(tmp_path: Path) -> None:
    (tmp_path / "crash.log").write_text("RuntimeError: CUDA error: out of memory\n")
    command = [sys.executable, "-m", "vramdoc", "diagnose", "crash.log"]
    with Path("/dev/full").open("w") as full:
        done = subprocess.run(
            command, cwd=tmp_path, stdout=full, stderr=subprocess.PIPE, text=True, check=False
        )
    assert done.returncode == 2
    assert done.stderr.startswith("vramdoc: the output cannot be written: No space left")
    assert len(done.stderr.splitlines()) == 1
