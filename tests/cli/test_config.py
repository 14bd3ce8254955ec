"""Defaults come from pyproject.toml and from variables; a flag wins over both."""

from __future__ import annotations

from pathlib import Path

import pytest

from vramdoc.cli.config import defaults_from_pyproject
from vramdoc.errors import UsageError

FLAGS = {"diagnose": {"gpu": "gpu", "format": "output_format"}, "capacity": {"gpu": "gpu"}}
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
    found = defaults_from_pyproject(FLAGS, inner)
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
        defaults_from_pyproject(FLAGS, tmp_path)


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("[tool.vramdoc.diagnose]\ngpuu = 1", "knows no gpuu; did you mean gpu?"),
        ("[tool.vramdoc]\ngpuu = 1", "knows no gpuu"),
        ("[tool.vramdoc.diagnos]\ngpu = 1", "did you mean diagnose?"),
        ("[tool.vramdoc.capacity]\nformat = 1", r"\[tool\.vramdoc\.capacity\] knows no format"),
    ],
)
def test_a_key_that_is_no_option_is_refused(text: str, says: str, tmp_path: Path) -> None:
    (tmp_path / "pyproject.toml").write_text(text)
    with pytest.raises(UsageError, match=says):
        defaults_from_pyproject(FLAGS, tmp_path)


def test_file_and_variable_spell_an_option_as_its_flag(vramdoc, tmp_path: Path) -> None:
    (tmp_path / "crash.log").write_text(OOM)
    (tmp_path / "pyproject.toml").write_text('[tool.vramdoc.diagnose]\nformat = "markdown"\n')
    assert vramdoc("diagnose", "crash.log").stdout.startswith("## ")
    variable = {"VRAMDOC_DIAGNOSE_FORMAT": "json", "VRAMDOC_VERSION": "0.1.0"}
    assert vramdoc("diagnose", "crash.log", env=variable).stdout.startswith("{")
    assert vramdoc("diagnose", "crash.log", "--format", "github", env=variable).stdout[:2] == "::"


def test_a_foreign_pyproject_is_no_concern(tmp_path: Path) -> None:
    (tmp_path / "pyproject.toml").write_text("this = is not toml")
    assert defaults_from_pyproject(FLAGS, tmp_path) == {}


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


@pytest.mark.parametrize(
    ("shell", "typed"),
    [
        ("bash", {"COMP_WORDS": "vramdoc diagnose --gpu rtx409", "COMP_CWORD": "3"}),
        ("zsh", {"_TYPER_COMPLETE_ARGS": "vramdoc diagnose --gpu rtx409"}),
        (
            "fish",
            {
                "_TYPER_COMPLETE_ARGS": "vramdoc diagnose --gpu rtx409",
                "_TYPER_COMPLETE_FISH_ACTION": "get-args",
            },
        ),
        (
            "powershell",
            {
                "_TYPER_COMPLETE_ARGS": "vramdoc diagnose --gpu rtx409",
                "_TYPER_COMPLETE_WORD_TO_COMPLETE": "rtx409",
            },
        ),
    ],
)
def test_four_shells_complete_commands_options_and_values(
    vramdoc, shell: str, typed: dict[str, str]
) -> None:
    assert "rtx4090" in vramdoc(env={"_VRAMDOC_COMPLETE": f"complete_{shell}", **typed}).stdout
    script = vramdoc(env={"_VRAMDOC_COMPLETE": f"source_{shell}"}).stdout
    assert f"complete_{shell}" in script
