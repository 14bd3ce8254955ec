"""Where the public snapshots lie, when they do."""

from pathlib import Path

import pytest

CORPUS = Path(__file__).parents[3] / "shared" / "snapshots"


@pytest.fixture(scope="session")
def corpus() -> Path:
    if not CORPUS.is_dir():
        pytest.skip("../shared/snapshots is absent")
    return CORPUS
