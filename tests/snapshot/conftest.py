"""The public snapshots of the corpus."""

from pathlib import Path

import pytest


@pytest.fixture(scope="session")
def public_snapshots(corpus: Path) -> Path:
    return corpus / "snapshots"
