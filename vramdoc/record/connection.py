"""This process's recorder, for marks to reach: whoever records connects himself here, and takes himself off again.

Imports no torch, and does nothing where nothing is recorded.
"""

from __future__ import annotations

import os
import time
from typing import TYPE_CHECKING, Any

from vramdoc.record.settings import VARIABLE

if TYPE_CHECKING:
    from vramdoc.record.inside.recorder import Recorder

_MOST_EARLY = 1000
"""Marks kept before the first use of the GPU; the latest count, for phases end where the next begins."""


class Connection:
    """The one recorder of this process, or the marks that wait for it to begin."""

    recorder: Recorder | None = None
    is_waiting = VARIABLE in os.environ
    """Under ``vramdoc record`` a mark may come before torch is imported."""
    early: tuple[tuple[str, int, dict[str, Any]], ...] = ()


def mark(name: str, **detail: int | float | str) -> None:
    """Say that the phase ``name`` begins here and lasts until the next mark or the end. Nothing, when not recording."""
    if Connection.recorder is not None:
        Connection.recorder.mark(name, _now_us(), **detail)
    elif Connection.is_waiting:
        Connection.early = (*Connection.early, (name, _now_us(), detail))[-_MOST_EARLY:]


def wait() -> None:
    """A recording will begin with the first use of the GPU: keep the marks until then."""
    Connection.is_waiting = True


def begin(recorder: Recorder) -> None:
    """A recording began: hand it the marks so far, and everything from here on."""
    Connection.recorder, Connection.is_waiting = recorder, False
    early, Connection.early = Connection.early, ()
    for name, time_us, detail in early:
        recorder.mark(name, time_us, **detail)


def end() -> None:
    """The recording is over, or is another process's."""
    Connection.recorder, Connection.is_waiting, Connection.early = None, False, ()


def _now_us() -> int:
    return time.time_ns() // 1000
