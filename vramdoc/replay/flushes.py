"""Who returned memory: the program with ``empty_cache``, or the allocator on its way to new memory. The trace shows both alike.

Under another config the program's calls stay and the allocator's own do not, so each must be told apart; where no evidence
decides, it is taken for the allocator's own and counted in a note.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import TYPE_CHECKING

import numpy as np

from vramdoc.allocator.config import UNLIMITED, AllocatorConfig
from vramdoc.replay.engines import Outcome
from vramdoc.replay.requests import (
    SEGMENT_ALLOC,
    SEGMENT_FREE,
    SEGMENT_MAP,
    SEGMENT_UNMAP,
    Op,
    Requests,
)

if TYPE_CHECKING:
    import numpy.typing as npt

    from vramdoc.snapshot.model import Trace


def settle(
    requests: Requests, trace: Trace, config: AllocatorConfig, follow: Callable[[Requests], Outcome]
) -> Requests:
    """Decide about every FLUSH operation.

    Args:
        requests: as taken out of ``trace``.
        trace: the recorded events.
        config: the recorded one.
        follow: replays requests along the trace, up to the first difference.
    """
    flushes = np.flatnonzero(requests.op == Op.FLUSH)
    if not len(flushes):
        return requests
    explicit = _needed_for_the_recorded_events(requests, flushes, follow)
    if not _returns_early(config):
        explicit |= _would_have_fitted(requests, flushes, trace)
    settled = requests.settled(sorted(explicit))
    own = len(flushes) - len(explicit)
    if not own:
        return settled
    note = (
        f"{own} times cached memory was returned on the way to new memory: read as the allocator's own doing when the device was "
        "full, not as empty_cache"
    )
    return replace(settled, notes=(*settled.notes, note))


def _needed_for_the_recorded_events(
    requests: Requests, flushes: npt.NDArray[np.intp], follow: Callable[[Requests], Outcome]
) -> set[int]:
    """Flushes that must have been ``empty_cache``: the next request was in the cache, or the allocator returns other memory.

    Each one of the second kind costs another run; there can be no more runs than flushes.
    """
    explicit: set[int] = set()
    while True:
        op = requests.op.copy()
        op[list(explicit)] = Op.EMPTY_CACHE
        outcome = follow(replace(requests, op=op))
        explicit.update(outcome.explicit)
        if outcome.divergence is None:
            return explicit
        before = flushes[requests.event[flushes] <= outcome.divergence.event]
        if not len(before):
            return explicit
        last = int(before[-1])
        passed = last + 1 < len(requests) and requests.event[last + 1] < outcome.divergence.event
        if last in explicit or passed:
            return explicit
        explicit.add(last)


def _returns_early(config: AllocatorConfig) -> bool:
    """Whether the allocator may return memory before the device is full."""
    return config.garbage_collection_threshold > 0 or config.max_split_size != UNLIMITED


def _would_have_fitted(requests: Requests, flushes: npt.NDArray[np.intp], trace: Trace) -> set[int]:
    """Flushes before memory that would have fitted without them, as more was reserved at another time."""
    growth = np.where(np.isin(trace.action, (SEGMENT_ALLOC, SEGMENT_MAP)), trace.size, 0)
    shrink = np.where(np.isin(trace.action, (SEGMENT_FREE, SEGMENT_UNMAP)), trace.size, 0)
    reserved = np.cumsum(growth - shrink)
    most = reserved.max(initial=0)
    grows = np.flatnonzero(growth)
    fitted = set()
    for operation in flushes.tolist():
        event, following = int(requests.event[operation]), operation + 1
        if following == len(requests) or requests.op[following] == Op.FAILED:
            continue
        place = np.searchsorted(grows, event)
        wanted = growth[grows[place]] if place < len(grows) else 0
        if reserved[event] + shrink[event] + wanted <= most:
            fitted.add(operation)
    return fitted
