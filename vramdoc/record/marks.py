"""``vramdoc.mark`` and ``vramdoc.recording``: how a person's own program names its phases, or records a part of itself.

Costs nothing when nothing is recorded, and imports no torch by itself.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

from vramdoc.record.connection import Connection, mark

if TYPE_CHECKING:
    from contextlib import AbstractContextManager

    from vramdoc.record.inside.recorder import Recorder

__all__ = ["mark", "recording"]


@contextmanager
def recording(name: str, root: Path | str = ".vramdoc") -> Iterator[Path | None]:
    """Record what happens inside and yield the recording's folder; None when there is no GPU to record.

    Under ``vramdoc record`` it is one phase of that recording, and the folder is that one's. An exception goes through, and is
    kept as the end.
    """
    with _block(name, Path(root)) as folder:
        yield folder


def _block(name: str, root: Path) -> AbstractContextManager[Path | None]:
    if Connection.recorder is not None:
        return _phase(Connection.recorder, name)
    if Connection.is_waiting:
        return _early_phase(name)
    from vramdoc.record.inside.block import record_block  # noqa: PLC0415 # it needs torch

    return record_block(name, root)


@contextmanager
def _phase(recorder: Recorder, name: str) -> Iterator[Path]:
    with recorder.phase(name):
        yield recorder.folder


@contextmanager
def _early_phase(name: str) -> Iterator[None]:
    """Before the first use of the GPU no folder is known; the phase is kept if that use comes inside it."""
    mark(name)
    try:
        yield
    finally:
        if Connection.recorder is not None:
            Connection.recorder.end_mark()
