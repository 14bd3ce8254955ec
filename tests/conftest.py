"""What every test may ask for: the corpus beside the project, the command line as a user runs it."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest
from hypothesis import HealthCheck, settings

REPOSITORY = Path(__file__).resolve().parents[1]

settings.register_profile(
    "dev", max_examples=50, deadline=None, suppress_health_check=[HealthCheck.too_slow]
)
settings.register_profile(
    "ci",
    max_examples=100,
    deadline=None,
    derandomize=True,
    suppress_health_check=[HealthCheck.too_slow],
)
settings.register_profile(
    "thorough", max_examples=2_000, deadline=None, suppress_health_check=[HealthCheck.too_slow]
)
settings.load_profile(os.environ.get("HYPOTHESIS_PROFILE", "ci" if os.environ.get("CI") else "dev"))


READERS = {"attacks", "snapshot", "crashlog", "checkpoint", "lint", "allocator"}
"""Areas that read foreign data: their random tests are what `make fuzz` runs for long."""


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Mark the random tests of every reader of foreign data, so that none is forgotten."""
    for item in items:
        area = item.path.relative_to(REPOSITORY / "tests").parts[0]
        is_random = getattr(getattr(item, "obj", None), "is_hypothesis_test", False)
        if area in READERS and (is_random or item.path.stem == "test_scanner_memory"):
            item.add_marker(pytest.mark.fuzz)


@pytest.fixture(scope="session")
def corpus() -> Path:
    """The folder of public material beside the project; tests that need it are marked ``corpus``."""
    folder = REPOSITORY.parent / "shared"
    if not folder.is_dir():
        pytest.skip("../shared is not beside this checkout")
    return folder


Run = Callable[..., "subprocess.CompletedProcess[str]"]


@pytest.fixture
def vramdoc(tmp_path: Path) -> Run:
    """Run the command line in a real child process, in an empty folder, with a pipe instead of a terminal."""

    def run(
        *arguments: str | Path,
        stdin: str = "",
        env: dict[str, str] | None = None,
        cwd: Path = tmp_path,
    ) -> subprocess.CompletedProcess[str]:
        clean = {k: v for k, v in os.environ.items() if not k.startswith(("VRAMDOC_", "PYTORCH_"))}
        return subprocess.run(
            [sys.executable, "-m", "vramdoc", *map(str, arguments)],
            input=stdin,
            capture_output=True,
            text=True,
            cwd=cwd,
            env={**clean, "COLUMNS": "80", **(env or {})},
            timeout=300,
            check=False,
        )

    return run


@pytest.fixture(scope="session")
def tiny_model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A decoder of a few MB with random weights, as a bare safetensors file."""
    path = tmp_path_factory.mktemp("model") / "tiny.safetensors"
    subprocess.run(
        [sys.executable, REPOSITORY / "examples" / "make_model.py", "--shape", "tiny", path],
        check=True,
        capture_output=True,
    )
    return path
