"""Requests taken out of a trace.

A trace tells requests (``alloc``, ``free_requested``), completions (``free_completed``) and what the allocator made of them
(``segment_*``). Only the first two kinds are the program's; releases of segments are its own only where nothing else explains
them (``empty_cache``). What lived before the trace began is worked out in ``start``. This module knows no allocator rule.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from vramdoc.errors import Contradiction, UsageError
from vramdoc.replay.requests import OlderBlocks, Op, Requests
from vramdoc.snapshot.model import ACTIONS

if TYPE_CHECKING:
    import numpy.typing as npt

    from vramdoc.snapshot.model import Snapshot, Trace

    Integers = npt.NDArray[np.int64]

(
    ALLOC,
    FREE_REQUESTED,
    FREE_COMPLETED,
    SEGMENT_ALLOC,
    SEGMENT_FREE,
    SEGMENT_MAP,
    SEGMENT_UNMAP,
    OOM,
) = range(8)
"""Action codes of a Trace."""
_NOTHING = 3
"""In the table below: no earlier event at this address."""
_FOLLOWS = np.array(
    # now: alloc, free_requested, free_completed      before:
    [
        [False, True, True],  # alloc
        [False, False, True],  # free_requested
        [True, False, False],  # free_completed
        [True, True, True],  # nothing
    ]
)
_VERB = ("allocates", "frees", "completes the free of")


def requests_of(snapshot: Snapshot, device: int) -> Requests:
    """The requests that a snapshot recorded for ``device``.

    Raises:
        UsageError: the snapshot has no events of that device.
        Contradiction: the trace contradicts itself or the segments, named at the first event that does.
    """
    trace = next((t for t in snapshot.traces if t.device == device and len(t)), None)
    if trace is None:
        raise UsageError(
            f"the snapshot has no events of device {device}, so there is nothing to replay",
            "record with torch.cuda.memory._record_memory_history(), or with `vramdoc record`",
        )
    lives = _Lives(trace)
    untouched = _untouched(snapshot, device, trace, lives)
    return _Builder(snapshot, trace, lives, untouched).build()


class _Lives:
    """Events at one address put together into lives: alloc, free_requested, free_completed."""

    def __init__(self, trace: Trace) -> None:
        chosen = np.flatnonzero(trace.action <= FREE_COMPLETED)
        order = np.argsort(trace.address[chosen], kind="stable")
        self.event = chosen[order]
        """Events by address, then in order of time."""
        address = trace.address[self.event]
        self.action = trace.action[self.event]
        self.first_here = np.ones(len(address), bool)
        self.first_here[1:] = address[1:] != address[:-1]
        self.before = np.full(len(address), _NOTHING, np.uint8)
        self.before[1:][~self.first_here[1:]] = self.action[:-1][~self.first_here[1:]]
        self._refuse_contradiction(trace)
        completes_allocated = (self.action == FREE_COMPLETED) & (self.before == ALLOC)
        self.skip_requests = bool(completes_allocated.any()) and FREE_REQUESTED not in self.action
        """Whether free_requested was not recorded at all (skip_actions, or a recorder of another make)."""
        self.opens = (self.action == ALLOC) | self.first_here
        self.life = np.cumsum(self.opens) - 1
        """Life of each event in ``event``."""
        self.opening = np.flatnonzero(self.opens)
        """Place in ``event`` of each life's first event."""
        closes = np.ones(len(address), bool)
        closes[:-1] = self.opens[1:]
        self.last = np.flatnonzero(closes)
        """Place in ``event`` of each life's last event."""
        ends_here = np.ones(len(address), bool)
        ends_here[:-1] = self.first_here[1:]
        self.final = np.flatnonzero(ends_here)
        """Place in ``event`` of the last event at each address."""

    def _refuse_contradiction(self, trace: Trace) -> None:
        wrong = ~_FOLLOWS[self.before, self.action]
        if not wrong.any():
            return
        place = np.flatnonzero(wrong)[np.argmin(self.event[wrong])]
        now, then = int(self.event[place]), int(self.event[place - 1])
        verb = _VERB[self.action[place]]
        state = ("allocated", "freed and not yet completed", "free")[self.before[place]]
        raise Contradiction(
            f"event {now} {verb} {int(trace.address[now]):#x}, which event {then} left {state}",
            "the trace is incomplete (filtered, or mixed from two recordings) and cannot be replayed",
        )


def _untouched(snapshot: Snapshot, device: int, trace: Trace, lives: _Lives) -> OlderBlocks:
    """Blocks of the final snapshot that no event mentions: they outlive the trace at both ends.

    Raises:
        Contradiction: a block is live at the end of the trace and not in the snapshot, or the other way round.
    """
    at_end = {
        block.address: (block, segment.stream)
        for segment in snapshot.segments
        if segment.device == device
        for block in segment.blocks
        if block.state != "inactive"
    }
    ends = lives.event[lives.final]
    still_live = trace.action[ends] != FREE_COMPLETED
    for event in np.sort(ends[still_live]):
        if int(trace.address[event]) not in at_end and not _is_cut_short(trace, int(event)):
            verb = "allocates" if trace.action[event] == ALLOC else "asks to free"
            raise Contradiction(
                f"event {int(event)} {verb} {int(trace.address[event]):#x} and nothing after it completes the free, yet the "
                "segments show no live block there",
                "trace and segments are not of one moment",
            )
    for event in np.sort(ends[~still_live]):
        if int(trace.address[event]) in at_end:
            raise Contradiction(
                f"event {int(event)} frees {int(trace.address[event]):#x} for good, yet the segments show a live block there",
                "trace and segments are not of one moment",
            )
    known = set(trace.address[ends[still_live]].tolist())
    rest = sorted(address for address in at_end if address not in known)
    blocks = [at_end[address] for address in rest]
    return OlderBlocks(
        address=np.array(rest, np.int64),
        requested=np.array([block.requested_size for block, _ in blocks], np.int64),
        size=np.array([block.size for block, _ in blocks], np.int64),
        stream=np.array([stream for _, stream in blocks], np.int64),
        pending=np.array([block.state != "active_allocated" for block, _ in blocks], bool),
        freed=np.full(len(rest), -1, np.int64),
    )


def _is_cut_short(trace: Trace, event: int) -> bool:
    """A free as the very last event: its completion is one event beyond the end."""
    return event == len(trace) - 1 and trace.action[event] == FREE_REQUESTED


class _Builder:
    """Puts the operations into columns."""

    def __init__(
        self, snapshot: Snapshot, trace: Trace, lives: _Lives, untouched: OlderBlocks
    ) -> None:
        self.snapshot = snapshot
        self.trace = trace
        self.lives = lives
        self.untouched = untouched
        self.notes: list[str] = []

    def build(self) -> Requests:
        trace, lives = self.trace, self.lives
        older = self._older()
        number = self._numbers(len(older) - len(self.untouched), len(older))
        op = np.full(len(trace), 255, np.uint8)
        block = np.full(len(trace), -1, np.int32)
        block[lives.event] = number[lives.life]
        op[trace.action == ALLOC] = Op.ALLOC
        op[trace.action == OOM] = Op.FAILED
        self._frees(op)
        moved = self._releases(op)
        chosen = np.flatnonzero(op != 255)
        if moved:
            place = 2 * np.arange(len(trace), dtype=np.int64)
            place[list(moved)] = [2 * request + 1 for request in moved.values()]
            chosen = chosen[np.argsort(place[chosen], kind="stable")]
        op = op[chosen]
        asks = (op == Op.ALLOC) | (op == Op.FAILED)
        pool, pools = self._pools(chosen, asks)
        self._name_oddities(pools)
        return Requests(
            device=trace.device,
            op=op,
            block=block[chosen],
            size=np.where(asks, trace.size[chosen], 0),
            stream=trace.stream[chosen],
            pool=pool,
            event=chosen,
            pools=pools,
            blocks=len(older) + int((op == Op.ALLOC).sum()),
            older=older,
            notes=tuple(self.notes),
        )

    def _older(self) -> OlderBlocks:
        """Lives whose first event is a free, by address, then the untouched ones."""
        trace, lives, untouched = self.trace, self.lives, self.untouched
        opening = lives.opening[lives.action[lives.opening] != ALLOC]
        first = lives.event[opening]
        pending = (trace.action[first] == FREE_COMPLETED) & (not lives.skip_requests)
        return OlderBlocks(
            address=np.concatenate((trace.address[first], untouched.address)),
            requested=np.concatenate((trace.size[first], untouched.requested)),
            size=np.concatenate((self._final_sizes(trace.address[first], opening), untouched.size)),
            stream=np.concatenate((trace.stream[first], untouched.stream)),
            pending=np.concatenate((pending, untouched.pending)),
            freed=np.concatenate((first, untouched.freed)),
        )

    def _final_sizes(self, addresses: Integers, opening: Integers) -> Integers:
        """Sizes of older blocks that are freed in the trace but still wait at its end; 0 for the rest."""
        lives = self.lives
        ends = lives.event[lives.last[lives.life[opening]]]
        waiting = self.trace.action[ends] == FREE_REQUESTED
        sizes = np.zeros(len(addresses), np.int64)
        if waiting.any():
            by_address = {
                block.address: block.size
                for segment in self.snapshot.segments
                if segment.device == self.trace.device
                for block in segment.blocks
            }
            sizes[waiting] = [by_address[int(address)] for address in addresses[waiting]]
        return sizes

    def _numbers(self, older_in_trace: int, older: int) -> npt.NDArray[np.int32]:
        """Block numbers by life: older lives by address, then allocations in order of time."""
        lives = self.lives
        allocated = lives.action[lives.opening] == ALLOC
        number = np.empty(len(lives.opening), np.int32)
        number[~allocated] = np.arange(older_in_trace)
        begun = lives.event[lives.opening[allocated]]
        rank = np.empty(len(begun), np.int32)
        rank[np.argsort(begun, kind="stable")] = np.arange(len(begun))
        number[allocated] = older + rank
        return number

    def _frees(self, op: npt.NDArray[np.uint8]) -> None:
        lives = self.lives
        requested = np.flatnonzero(lives.action == FREE_REQUESTED)
        last = requested + 1 == len(lives.event)
        following = np.where(last, requested, requested + 1)
        now = lives.event[requested]
        at_once = (
            ~last
            & (lives.life[following] == lives.life[requested])
            & (lives.event[following] == now + 1)
        )
        op[now] = np.where(at_once, Op.FREE, Op.HOLD)
        if (
            len(now)
            and now.max() == len(self.trace) - 1
            and not self._waits_at_end(len(self.trace) - 1)
        ):
            op[len(self.trace) - 1] = Op.FREE
        completed = np.flatnonzero(lives.action == FREE_COMPLETED)
        had_request = lives.before[completed] == FREE_REQUESTED
        first_of_all = lives.before[completed] == _NOTHING
        events = lives.event[completed]
        op[events] = Op.COMPLETE
        op[now[at_once] + 1] = 255
        if lives.skip_requests:
            op[events] = Op.FREE
            self.notes.append(
                "the trace holds no free_requested events: every free is taken to complete at once"
            )
        else:
            op[events[~had_request & ~first_of_all]] = Op.FREE
        held = int((op == Op.HOLD).sum())
        if held:
            self.notes.append(
                f"{held} frees waited for another stream; they complete where the trace says they did"
            )

    def _waits_at_end(self, event: int) -> bool:
        address = int(self.trace.address[event])
        return any(
            block.address == address and block.state != "inactive"
            for segment in self.snapshot.segments
            if segment.device == self.trace.device
            for block in segment.blocks
        )

    def _releases(self, op: npt.NDArray[np.uint8]) -> dict[int, int]:
        """Find where memory was returned: by the program, or on the way to new memory (``flushes`` decides about those).

        Returns:
            Completions in the midst of such a return, by event, and the event of the request: it was the allocator that
            completed them, so they must not come before the request.
        """
        trace = self.trace
        release = (trace.action == SEGMENT_FREE) | (trace.action == SEGMENT_UNMAP)
        moved: dict[int, int] = {}
        if not release.any():
            return moved
        silent = trace.action > OOM
        asking = np.flatnonzero((trace.action == ALLOC) | (trace.action == OOM))
        for first, last in _runs(release, silent | (trace.action == FREE_COMPLETED)):
            following = last + 1
            while following < len(trace) and (silent[following] or op[following] == Op.COMPLETE):
                following += 1
            cause = int(trace.action[following]) if following < len(trace) else -1
            if cause not in {OOM, SEGMENT_ALLOC, SEGMENT_MAP}:
                op[first] = Op.EMPTY_CACHE
                continue
            op[first] = Op.FLUSH
            request = asking[np.searchsorted(asking, following) :][:1].tolist()
            for event in np.flatnonzero(op[first:following] == Op.COMPLETE) if request else ():
                moved[first + int(event)] = request[0]
        return moved

    def _pools(
        self, chosen: Integers, asks: npt.NDArray[np.bool_]
    ) -> tuple[npt.NDArray[np.int16], tuple[tuple[int, int], ...]]:
        """Pool of each request: as recorded, else that of the segment that holds the address at the end."""
        trace = self.trace
        pools: dict[tuple[int, int], int] = {(0, 0): 0}
        code = np.array(
            [pools.setdefault(pool, len(pools)) for pool in trace.pools] or [0], np.int16
        )
        pool = np.zeros(len(chosen), np.int16)
        recorded = trace.pool[chosen]
        pool[recorded >= 0] = code[recorded[recorded >= 0]]
        private = [
            s
            for s in self.snapshot.segments
            if s.device == trace.device and s.segment_pool_id != (0, 0)
        ]
        if private and (recorded[asks] < 0).any():
            for segment in private:
                address = trace.address[chosen]
                inside = asks & (recorded < 0)
                inside &= (address >= segment.address) & (
                    address < segment.address + segment.total_size
                )
                pool[inside] = pools.setdefault(segment.segment_pool_id, len(pools))
            self.notes.append(
                "this release records no pool with its events: pools are those of the segments at the end"
            )
        return pool, tuple(pools)

    def _name_oddities(self, pools: tuple[tuple[int, int], ...]) -> None:
        trace = self.trace
        unknown = sorted(
            {trace.actions[code] for code in np.unique(trace.action) if code >= len(ACTIONS)}
        )
        if unknown:
            self.notes.append(f"actions that nobody knows yet were left out: {', '.join(unknown)}")
        graphs = sum(first > 0 for first, _ in pools)
        if graphs:
            self.notes.append(
                f"{graphs} private pools belong to CUDA graphs; a replayed graph reuses its pool without any event"
            )
        others = [t.device for t in self.snapshot.traces if t.device != trace.device and len(t)]
        if others:
            self.notes.append(
                f"devices {', '.join(map(str, others))} have events too; each device has an allocator of its own"
            )


def _runs(release: npt.NDArray[np.bool_], between: npt.NDArray[np.bool_]) -> list[tuple[int, int]]:
    """First and last index of each run of releases; other events may stand between them only where allowed."""
    places = np.flatnonzero(release)
    blocked = np.cumsum(~(release | between))
    cuts = np.flatnonzero(blocked[places[1:]] != blocked[places[:-1]]) + 1
    return [(int(run[0]), int(run[-1])) for run in np.split(places, cuts)]
