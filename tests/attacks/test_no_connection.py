"""Nothing connects, looks a name up or listens: in every process that a command starts, whatever it analyses."""

import os
import pickle
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from tests.evidence.programs import played

WATCH = """
import os, sys

def watch(event, arguments):
    if event in {"socket.connect", "socket.getaddrinfo", "socket.gethostbyname", "socket.bind", "socket.sendto"}:
        with open(os.environ["CONNECTIONS"], "a") as log:
            print(event, *arguments[1:], file=log)

sys.addaudithook(watch)
with open(os.environ["CONNECTIONS"] + ".watched", "a") as log:
    print(os.getpid(), file=log)
"""
"""Runs as ``sitecustomize`` in each Python process, the recorded ones too."""


@pytest.fixture
def watched(tmp_path: Path) -> dict[str, str]:
    hook = tmp_path / "hook"
    hook.mkdir()
    (hook / "sitecustomize.py").write_text(WATCH)
    return {**os.environ, "PYTHONPATH": str(hook), "CONNECTIONS": str(tmp_path / "connections")}


@pytest.fixture
def run(tmp_path: Path, watched: dict[str, str]):
    def run(*arguments: str, processes: int = 1) -> None:
        done = subprocess.run(
            [sys.executable, "-m", "vramdoc", *arguments],
            env=watched,
            cwd=tmp_path,
            capture_output=True,
            text=True,
            check=False,
            timeout=120,
        )
        assert done.returncode in {0, 1, 3}, done.stderr
        assert len(set((tmp_path / "connections.watched").read_text().split())) >= processes
        connections = tmp_path / "connections"
        assert not connections.exists(), connections.read_text()

    return run


def test_the_watch_sees_a_connection(watched: dict[str, str], tmp_path: Path) -> None:
    program = "import socket; socket.socket().connect_ex(('127.0.0.1', 1))"
    subprocess.run([sys.executable, "-c", program], env=watched, check=True)
    assert (tmp_path / "connections").read_text().startswith("socket.connect")


def test_analysing_files(run, tmp_path: Path) -> None:
    (tmp_path / "crash.log").write_text(
        "torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 2.00 GiB.\n"
    )
    (tmp_path / "a.pickle").write_bytes(pickle.dumps(played(1)[0].snapshot()))
    shutil.copy(tmp_path / "a.pickle", tmp_path / "b.pickle")
    (tmp_path / "loop.py").write_text("losses.append(loss)\n")
    run("diagnose", "crash.log", "--report", "r.md", "--html", "r.html")
    run("diagnose", "a.pickle", "--html", "s.html")
    run("diff", "a.pickle", "b.pickle")
    run("compare-alloc-configs", "a.pickle", "b.pickle")
    run("lint", "loop.py")


@pytest.mark.virtual_gpu
def test_running_a_model(run, tiny_model: Path) -> None:
    run("diagnose", str(tiny_model), "--gpu", "8GiB", "--trials", "0", processes=2)
