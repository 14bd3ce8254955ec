"""The start-up path imports nothing heavy."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

HEAVY = (
    "torch",
    "numpy",
    "pandas",
    "matplotlib",
    "pynvml",
    "transformers",
    "safetensors",
    "jinja2",
)


def modules_after(code: str) -> set[str]:
    script = f"import sys\n{code}\nprint(*sys.modules, sep='\\n', file=sys.stderr)"
    done = subprocess.run(
        [sys.executable, "-c", script], capture_output=True, text=True, check=True
    )
    return {name.split(".")[0] for name in done.stderr.split()}


def test_importing_the_package_imports_nothing_heavy() -> None:
    assert not modules_after("import vramdoc") & set(HEAVY)


@pytest.mark.parametrize(
    "arguments", [["--help"], ["--version"], ["diagnose", "--help"], ["lint", "--help"]]
)
def test_help_imports_nothing_heavy(arguments: list[str]) -> None:
    assert not modules_after(command(arguments)) & set(HEAVY)


def test_a_crash_text_pays_for_no_reader_of_snapshots(tmp_path: Path) -> None:
    """Each of these alone takes a third of the time that diagnosing a text may take."""
    crash = tmp_path / "crash.log"
    crash.write_text("torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 2.00 GiB.\n")
    assert not modules_after(command(["diagnose", str(crash)])) & {*HEAVY, "pydantic"}


def command(arguments: list[str]) -> str:
    return (
        f"sys.argv = ['vramdoc', *{arguments!r}]\n"
        "from vramdoc.__main__ import main\n"
        "try:\n    main()\nexcept SystemExit:\n    pass"
    )
