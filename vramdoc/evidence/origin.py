"""Which device to look at, and what was recorded for it: what every measure of a snapshot asks first."""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING

import numpy as np

from vramdoc.snapshot.model import ACTIONS, Trace

if TYPE_CHECKING:
    import numpy.typing as npt

    from vramdoc.snapshot.model import Snapshot


def trace_of(snapshot: Snapshot, device: int) -> Trace:
    """The trace of ``device``; one without events where nothing was recorded for it."""
    for trace in snapshot.traces:
        if trace.device == device:
            return trace
    none = np.empty(0, np.int64)
    return Trace(
        device=device,
        actions=ACTIONS,
        action=none.astype(np.uint8),
        address=none,
        size=none,
        stream=none,
        time_us=none,
        pool=none.astype(np.int16),
        stack=none.astype(np.int32),
        pools=(),
        stacks=(),
    )


def rows_of(trace: Trace, *actions: str) -> npt.NDArray[np.intp]:
    """Indices of the events with one of ``actions``, in order."""
    codes = [trace.actions.index(action) for action in actions if action in trace.actions]
    return np.flatnonzero(np.isin(trace.action, codes))


def device_of_interest(snapshot: Snapshot) -> int:
    """The device that ran out of memory last, else the one with most reserved bytes, else the one with most events."""
    failures = [
        (int(trace.time_us[rows[-1]]), trace.device)
        for trace in snapshot.traces
        if len(rows := rows_of(trace, "oom"))
    ]
    if failures:
        return max(failures)[1]
    reserved: Counter[int] = Counter()
    for segment in snapshot.segments:
        reserved[segment.device] += segment.total_size
    if reserved:
        return max(reserved, key=lambda device: (reserved[device], -device))
    events = {trace.device: len(trace) for trace in snapshot.traces}
    return max(events, key=lambda device: (events[device], -device), default=0)
