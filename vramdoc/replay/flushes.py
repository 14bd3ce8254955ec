"""Who returned memory: the program with ``empty_cache``, or the allocator on its way to new memory. The trace shows both alike.

Under another config the program's calls stay and the allocator's own do not, so each must be told apart; where no evidence
decides, it is taken for the allocator's own and counted in a note.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Callable
from dataclasses import dataclass, replace
from enum import Enum
from typing import TYPE_CHECKING

import numpy as np

from vramdoc.allocator.config import UNLIMITED, AllocatorConfig
from vramdoc.replay.engines import Outcome
from vramdoc.replay.from_trace import SEGMENT_ALLOC, SEGMENT_FREE, SEGMENT_MAP, SEGMENT_UNMAP
from vramdoc.replay.requests import Op, Requests

if TYPE_CHECKING:
    import numpy.typing as npt

    from vramdoc.snapshot.model import Trace


class Reading(Enum):
    """How one return of memory, or one ``oom`` without any, is read; in the order in which readings are tried."""

    FLUSH = "the allocator's flush, which completed the frees that stand before it"
    RETURN = "what the allocator returns before the device is full; frees before it were complete already"
    PROGRAM = "the program's empty_cache"
    WAITING = (
        "a flush that also completed the free directly before it, which looks complete at once"
    )


_ORDER = tuple(Reading)


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
    if not (requests.op >= Op.FAILED).any():
        return requests
    read, by_program = _readings(requests, follow)
    flushes = np.flatnonzero(read.op == Op.FLUSH)
    if not _returns_early(config):
        by_program |= _would_have_fitted(read, flushes, trace)
    settled = read.settled(sorted(by_program))
    own = len(flushes) - len(by_program)
    if not own:
        return settled
    note = (
        f"{own} times cached memory was returned on the way to new memory: read as the allocator's own doing when the device was "
        "full, not as empty_cache"
    )
    return replace(settled, notes=(*settled.notes, note))


@dataclass(frozen=True, slots=True)
class _Return:
    """One return of memory, or one ``oom`` without any, among the requests as they stand in the trace."""

    row: int
    """The FLUSH or FAILED operation."""
    asking: int
    """The request on whose way it was."""
    completions: int
    """How many completions stand directly before it."""
    begins: int
    """Event of the first of them, or of the free directly before."""
    free_at_once: bool
    """Whether a free stands directly before all that."""


def _returns(requests: Requests) -> list[_Return]:
    """All of them, in order."""
    op, event = requests.op, requests.event
    found = []
    for row in np.flatnonzero(op >= Op.FAILED).tolist():
        if op[row] == Op.FAILED and row and op[row - 1] == Op.FLUSH:
            continue
        first = row
        while first and op[first - 1] == Op.COMPLETE:
            first -= 1
        at_once = bool(first and op[first - 1] == Op.FREE and event[first - 1] + 2 == event[first])
        found.append(
            _Return(
                row=row,
                asking=row + int(op[row] == Op.FLUSH),
                completions=row - first,
                begins=int(event[first - at_once]),
                free_at_once=at_once,
            )
        )
    return found


def _readings(
    requests: Requests, follow: Callable[[Requests], Outcome]
) -> tuple[Requests, set[int]]:
    """Read every return so that the recorded events come out; where one reading fails, the next is tried.

    Returns:
        The requests so arranged, and FLUSH operations among them that must have been ``empty_cache`` too. There are at most four runs for
        each return, and in ordinary recordings one in all.
    """
    returns = _returns(requests)
    readings = [Reading.FLUSH] * len(returns)
    while True:
        arranged = _arranged(requests, returns, readings)
        outcome = follow(arranged)
        failing = _failing(requests, returns, outcome)
        if failing is None or readings[failing] is _ORDER[-1]:
            return arranged, set(outcome.explicit)
        readings[failing] = _ORDER[_ORDER.index(readings[failing]) + 1]


def _failing(requests: Requests, returns: list[_Return], outcome: Outcome) -> int | None:
    """The return of memory during which the replay left the recording."""
    if outcome.divergence is None:
        return None
    event = outcome.divergence.event
    place = bisect_right(returns, event, key=lambda r: r.begins) - 1
    if place < 0:
        return None
    asking = returns[place].asking
    passed = asking < len(requests) and requests.event[asking] < event
    return None if passed else place


def _arranged(requests: Requests, returns: list[_Return], readings: list[Reading]) -> Requests:
    """Put completions behind the request whose flush made them; it does not search again, so they must not come before."""
    op, place = requests.op.copy(), 2 * np.arange(len(requests))
    made: dict[int, int] = {}
    for found, reading in zip(returns, readings, strict=True):
        behind = 2 * found.asking + 1
        first = found.row - found.completions
        if reading is not Reading.RETURN:
            place[first : found.row] = behind
        if reading is Reading.PROGRAM and op[found.row] == Op.FLUSH:
            op[found.row] = Op.EMPTY_CACHE
        if reading is Reading.WAITING and found.free_at_once:
            op[first - 1] = Op.HOLD
            made[first - 1] = behind
    completions = requests.rearranged(np.array(list(made), np.int64))
    completions = replace(completions, op=np.full(len(made), Op.COMPLETE, np.uint8))
    both = replace(requests, op=op).followed_by(completions)
    place = np.concatenate((place, np.array(list(made.values()), np.int64)))
    return both.rearranged(np.argsort(place, kind="stable"))


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
