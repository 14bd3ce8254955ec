"""The public snapshots, as for the tests of reading."""

from tests.snapshot.conftest import corpus

__all__ = ["corpus"]
