"""``vramdoc.mark`` and ``vramdoc.recording``: how a person's own program names its phases, or records a part of itself.

Costs nothing when nothing is recorded, and imports no torch: whoever records connects himself here.
"""

from __future__ import annotations

import os
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

from vramdoc.record.settings import VARIABLE

if TYPE_CHECKING:
    from contextlib import AbstractContextManager

    from vramdoc.record.inside.recorder import Recorder

__all__ = ["mark", "recording"]


class _Connection:
    """This process's recorder, or the marks that wait for it to begin."""

    recorder: Recorder | None = None
    is_waiting = VARIABLE in os.environ
    """Under ``vramdoc record`` a mark may come before torch is imported."""
    early: tuple[tuple[str, int, dict[str, Any]], ...] = ()


def mark(name: str, **detail: int | float | str) -> None:
    """Say that the phase ``name`` begins here and lasts until the next mark or the end. Nothing, when not recording."""
    if _Connection.recorder is not None:
        _Connection.recorder.mark(name, _now_us(), **detail)
    elif _Connection.is_waiting:
        _Connection.early = (*_Connection.early, (name, _now_us(), detail))[-1000:]


@contextmanager
def recording(name: str, root: Path | str = ".vramdoc") -> Iterator[Path | None]:
    """Record what happens inside and yield the recording's folder; None when there is no GPU to record.

    Under ``vramdoc record`` it is one phase of that recording, and the folder is that one's. An exception goes through, and is
    kept as the end.
    """
    with _block(name, Path(root)) as folder:
        yield folder


def _block(name: str, root: Path) -> AbstractContextManager[Path | None]:
    if _Connection.recorder is not None:
        return _phase(_Connection.recorder, name)
    if _Connection.is_waiting:
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
        if _Connection.recorder is not None:
            _Connection.recorder.end_mark()


def wait() -> None:
    """A recording will begin with the first use of the GPU: keep the marks until then."""
    _Connection.is_waiting = True


def begin(recorder: Recorder) -> None:
    """A recording began: hand it the marks so far, and everything from here on."""
    _Connection.recorder, _Connection.is_waiting = recorder, False
    early, _Connection.early = _Connection.early, ()
    for name, time_us, detail in early:
        recorder.mark(name, time_us, **detail)


def end() -> None:
    """The recording is over, or is another process's."""
    _Connection.recorder, _Connection.is_waiting, _Connection.early = None, False, ()


def _now_us() -> int:
    return time.time_ns() // 1000
