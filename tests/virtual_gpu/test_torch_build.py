"""Finding torch without importing it, and saying what to install or use instead."""

import sys
import venv
from pathlib import Path

import pytest

from vramdoc.errors import DeviceUnavailable, MissingDependency
from vramdoc.virtual_gpu.torch_build import find_torch, installed_version, read_build


def package(folder: Path, text: str) -> Path:
    directory = folder / "torch"
    directory.mkdir()
    (directory / "version.py").write_text(text, encoding="utf-8")
    return directory


def test_a_cuda_build_is_read_from_its_text(tmp_path: Path) -> None:
    text = "from typing import Optional\n__version__ = '2.9.1+cu128'\ncuda: Optional[str] = '12.8'\nhip: Optional[str] = None\n"
    build = read_build(package(tmp_path, text))
    assert (build.version, build.release) == ("2.9.1+cu128", "2.9")
    assert (build.cuda, build.cuda_version) == ("12.8", 12080)
    assert build.site_packages == tmp_path


def test_nothing_of_it_is_executed(tmp_path: Path) -> None:
    trap = tmp_path / "trap"
    text = f"open({str(trap)!r}, 'w')\n__version__ = '2.9.1'\ncuda = '12.8'\n"
    read_build(package(tmp_path, text))
    assert not trap.exists()


def test_a_cpu_only_build_gets_the_command_that_fixes_it(tmp_path: Path) -> None:
    with pytest.raises(MissingDependency) as caught:
        read_build(package(tmp_path, "__version__ = '2.9.1+cpu'\ncuda = None\n"))
    assert "2.9.1+cpu is a build without CUDA" in caught.value.message
    assert "pip install --force-reinstall 'torch==2.9.1'" in caught.value.hint


@pytest.mark.parametrize(
    ("text", "error", "says"),
    [
        ("__version__ = '2.9.1'\ncuda = None\nhip = '6.4'\n", DeviceUnavailable, "ROCm"),
        ("__version__ = '2.5.1+cu124'\ncuda = '12.4'\n", DeviceUnavailable, "2.6 and newer"),
        ("__version__ = '2.6.0+cu118'\ncuda = '11.8'\n", DeviceUnavailable, "CUDA 12 or 13"),
        ("this is not Python", MissingDependency, "says its version"),
    ],
)
def test_other_builds_are_named(
    text: str, error: type[Exception], says: str, tmp_path: Path
) -> None:
    with pytest.raises(error, match=says):
        read_build(package(tmp_path, text))


@pytest.mark.parametrize(
    ("system", "machine"), [("Darwin", "arm64"), ("Windows", "AMD64"), ("Linux", "aarch64")]
)
def test_other_platforms_are_told_what_to_use_instead(system: str, machine: str) -> None:
    with pytest.raises(DeviceUnavailable) as caught:
        find_torch(system=system, machine=machine)
    assert machine in caught.value.message
    assert "--gpu cuda:0" in caught.value.hint


def test_another_interpreter_may_be_meant(tmp_path: Path) -> None:
    here = {"system": "Linux", "machine": "x86_64"}
    package(tmp_path, "__version__ = '2.12.1+cu130'\ncuda = '13.0'\n")
    (tmp_path / "torch" / "__init__.py").write_text("raise SystemExit('imported')\n")
    python = tmp_path / "python"
    python.write_text(f'#!/bin/sh\nPYTHONPATH={tmp_path} exec {sys.executable} "$@"\n')
    python.chmod(0o755)
    assert find_torch(str(python), **here).directory == tmp_path / "torch"
    assert installed_version(str(python)) == "2.12.1+cu130"
    with pytest.raises(MissingDependency, match="is not a Python that runs"):
        find_torch(str(tmp_path / "absent"), **here)


def test_an_interpreter_without_torch_is_named(tmp_path: Path) -> None:
    bare = tmp_path / "bare"
    venv.create(bare, with_pip=False, symlinks=True)
    with pytest.raises(MissingDependency) as caught:
        find_torch(str(bare / "bin" / "python"))
    assert str(bare) in caught.value.message
    assert "-m pip install" in caught.value.hint
