"""Journal: how a workload says what it is doing. The recorder implements it; a workload only knows this interface."""

from __future__ import annotations

from contextlib import AbstractContextManager, nullcontext
from typing import Any, Protocol


class Journal(Protocol):
    """Receives phases, observations and notes while a workload runs."""

    def phase(self, name: str, **detail: int | float | str) -> AbstractContextManager[None]:
        """Open a phase; its levels and peaks are measured by the receiver when it closes."""

    def observe(self, kind: str, **detail: Any) -> None:
        """Keep one observation (see ``record.recording.Observation``)."""

    def note(self, sentence: str) -> None:
        """Keep a sentence for the reader: what was inferred, how surely, what differs from a real run."""

    def progress(self, done: int, total: int) -> None:
        """Say how far the workload is; shown on stderr when it takes long."""


class SilentJournal:
    """Keeps nothing: for benchmarks, which measure by themselves."""

    def phase(self, name: str, **detail: int | float | str) -> AbstractContextManager[None]:  # noqa: D102, ARG002
        return nullcontext()

    def observe(self, kind: str, **detail: Any) -> None:  # noqa: D102
        pass

    def note(self, sentence: str) -> None:  # noqa: D102
        pass

    def progress(self, done: int, total: int) -> None:  # noqa: D102
        pass
