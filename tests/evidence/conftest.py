"""The public snapshots, as for the tests of reading."""

from tests.snapshot.conftest import public_snapshots

__all__ = ["public_snapshots"]
