"""Defaults come from pyproject.toml and from variables; a flag wins over both."""

from __future__ import annotations

from pathlib import Path

import pytest

from vramdoc.cli.config import defaults_from_pyproject
from vramdoc.errors import UsageError

OOM = (
    "torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 8.00 GiB. GPU 0 has a total capacity of 23.52 GiB of which "
    "1.00 GiB is free. Of the allocated memory 22.00 GiB is allocated by PyTorch, and 100.00 MiB is reserved by PyTorch but unallocated."
)


def test_shared_keys_reach_every_command_and_a_commands_own_win(tmp_path: Path) -> None:
    (tmp_path / "pyproject.toml").write_text(
        '[tool.vramdoc]\ngpu = "rtx3060"\n[tool.vramdoc.capacity]\ngpu = "h100"\n'
    )
    inner = tmp_path / "deep" / "down"
    inner.mkdir(parents=True)
    found = defaults_from_pyproject(inner)
    assert found["diagnose"]["gpu"] == "rtx3060"
    assert found["capacity"]["gpu"] == "h100"


@pytest.mark.parametrize(
    "text",
    [
        "[tool.vramdoc\n",
        "tool = 3 # [tool.vramdoc]",
        "[tool]\nvramdoc = 3 # [tool.vramdoc]",
        "[tool.vramdoc]\na = " + "[" * 100_000,
    ],
    ids=["cut off", "a number for tool", "a number for ours", "absurd depth"],
)
def test_a_broken_table_is_one_line(text: str, tmp_path: Path) -> None:
    (tmp_path / "pyproject.toml").write_text(text)
    with pytest.raises(UsageError, match=r"pyproject\.toml cannot be read"):
        defaults_from_pyproject(tmp_path)


def test_a_foreign_pyproject_is_no_concern(tmp_path: Path) -> None:
    (tmp_path / "pyproject.toml").write_text("this = is not toml")
    assert defaults_from_pyproject(tmp_path) == {}


def test_the_file_sets_an_option_a_variable_overrides_it_and_a_flag_overrides_both(
    vramdoc, tmp_path: Path
) -> None:
    (tmp_path / "crash.log").write_text(OOM)
    assert vramdoc("diagnose", "crash.log").returncode == 1
    (tmp_path / "pyproject.toml").write_text("[tool.vramdoc.diagnose]\nexit-zero = true\n")
    assert vramdoc("diagnose", "crash.log").returncode == 0
    (tmp_path / "pyproject.toml").unlink()
    assert vramdoc("diagnose", "crash.log", env={"VRAMDOC_DIAGNOSE_EXIT_ZERO": "1"}).returncode == 0


def test_json_and_streams_keep_their_promise_under_a_pipe(vramdoc, tmp_path: Path) -> None:
    (tmp_path / "crash.log").write_text(OOM)
    done = vramdoc("diagnose", "crash.log", env={"FORCE_COLOR": "1", "NO_COLOR": "1"})
    assert "\x1b" not in done.stdout
    assert "\x1b" in vramdoc("diagnose", "crash.log", env={"FORCE_COLOR": "1"}).stdout
    plain = vramdoc("diagnose", "crash.log", env={"PYTHONIOENCODING": "ascii"})
    assert plain.stdout.isascii()
    assert plain.returncode == 1
