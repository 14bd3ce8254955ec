"""What the documents say is true: README blocks run, pages made from the code are current, the site builds without a warning."""

from __future__ import annotations

import importlib.metadata
import os
import re
import shlex
import subprocess
import sys
from pathlib import Path

import pytest

REPOSITORY = Path(__file__).resolve().parents[1]
README = (REPOSITORY / "README.md").read_text(encoding="utf-8")
BLOCKS = re.findall(r"^```(\w*)\n(.*?)^```", README, flags=re.MULTILINE | re.DOTALL)
COMMANDS = [
    line
    for language, block in BLOCKS
    if language == "sh"
    for line in block.splitlines()
    if line.strip()
]


def test_every_block_of_the_readme_is_of_a_kind_that_is_run_or_compared() -> None:
    assert {language for language, _ in BLOCKS} <= {"sh", "text"}


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Where a reader would type the commands: the examples are there, and what earlier blocks made."""
    here = tmp_path_factory.mktemp("readme")
    (here / "examples").symlink_to(REPOSITORY / "examples")
    return here


def run(line: str, folder: Path) -> subprocess.CompletedProcess[str]:
    paths = os.pathsep.join([str(Path(sys.executable).parent), os.environ["PATH"]])
    environment = {
        k: v for k, v in os.environ.items() if not k.startswith(("VRAMDOC_", "PYTORCH_"))
    }
    return subprocess.run(
        ["sh", "-c", line],
        cwd=folder,
        env={**environment, "PATH": paths, "COLUMNS": "80"},
        capture_output=True,
        text=True,
        timeout=300,
        check=False,
    )


@pytest.mark.virtual_gpu
@pytest.mark.xdist_group("readme")
def test_every_command_of_the_readme_does_what_its_comment_says(folder: Path) -> None:
    for line in COMMANDS:
        words = shlex.split(line, comments=True)
        if words[:2] == ["pip", "install"]:
            check_install(words[2])
        elif words[0] == "make":
            done = subprocess.run(
                ["make", "-n", words[1]], cwd=REPOSITORY, capture_output=True, check=False
            )
            assert done.returncode == 0, line
        else:
            expected = re.search(r"# exit (\d)", line)
            done = run(line, folder)
            assert done.returncode == int(expected[1] if expected else 0), (
                line,
                done.stdout,
                done.stderr,
            )


def check_install(requirement: str) -> None:
    name, _, extra = requirement.partition("[")
    assert name == "vramdoc"
    extras = importlib.metadata.metadata("vramdoc").get_all("Provides-Extra") or []
    assert not extra or extra.rstrip("]") in extras


@pytest.mark.virtual_gpu
@pytest.mark.xdist_group("readme")
def test_the_report_in_the_readme_is_the_real_one(folder: Path) -> None:
    [report] = [
        block for language, block in BLOCKS if language == "text" and "FRAGMENTATION" in block
    ]
    command, _, expected = report.partition("\n")
    done = run(command.removeprefix("$ "), folder)
    assert without_release(done.stdout) == without_release(expected)


def without_release(report: str) -> str:
    """The figures do not hang on the torch release that happens to be installed; its name does."""
    return re.sub(r"torch \S+", "torch ...", report.strip())


def test_pages_made_from_the_code_are_current() -> None:
    script = REPOSITORY / "docs" / "generate.py"
    done = subprocess.run(
        [sys.executable, script, "--check"], capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr


def test_the_site_builds_without_a_warning(tmp_path: Path) -> None:
    command = [
        sys.executable,
        "-m",
        "mkdocs",
        "build",
        "--strict",
        "--quiet",
        "--site-dir",
        tmp_path / "site",
    ]
    done = subprocess.run(command, cwd=REPOSITORY, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    assert (tmp_path / "site" / "tutorial" / "index.html").is_file()


def test_every_command_is_in_the_reference_and_in_the_readme() -> None:
    import typer.main

    from vramdoc.cli.app import app

    reference = (REPOSITORY / "docs" / "reference.md").read_text(encoding="utf-8")
    for name in typer.main.get_command(app).commands:
        assert f"## vramdoc {name}" in reference
        assert f"vramdoc {name}" in README, f"{name} is not in the README"
