"""What one more session asks of the allocator, taken from a recording of three: so that any number can be simulated.

In the workload ``fill`` every session does the same: it reads its prompt, and decodes one token when all are there. The
first session also pays what is paid once (cuBLAS workspaces), and the second meets what the first left behind, so the third
is the pattern. ``steady`` says whether the second and the third really asked for the same; if not, simulating more of
them would be a guess. It knows no allocator rule (``simulate``).
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

import numpy as np

from vramdoc.errors import UnreadableInput
from vramdoc.record.recording import Recording
from vramdoc.replay.replayable import replayable
from vramdoc.replay.requests import Op, Requests
from vramdoc.snapshot.reader import read_snapshot

if TYPE_CHECKING:
    import numpy.typing as npt

    Integers = npt.NDArray[np.int64]

CALIBRATION_SESSIONS = 3
LAST = CALIBRATION_SESSIONS - 1
"""The session whose units are the pattern."""

UnitName = tuple[str, int]
"""``("load", 0)``, ``("prefill", session)`` or ``("decode", session)``."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Unit:
    """The operations of one unit, in order: rows of a Requests, and for each the block that it means."""

    rows: Integers
    owner: Integers
    """Index in ``owners`` of the unit that allocates the row's block; -1 for a row without a block."""
    place: Integers
    """Which of the owner's allocations the block is."""
    owners: tuple[UnitName, ...]
    made: int
    """Blocks that this unit allocates."""


@dataclass(frozen=True, slots=True, kw_only=True)
class SessionStream:
    """A calibration run cut into its units."""

    requests: Requests
    units: dict[UnitName, Unit]

    @property
    def steady(self) -> bool:
        """Whether sessions 1 and 2 asked for the same sizes in the same order."""
        return all(
            np.array_equal(self._sizes((kind, 1)), self._sizes((kind, 2)))
            for kind in ("prefill", "decode")
        )

    def _sizes(self, unit: UnitName) -> Integers:
        rows = self.units[unit].rows
        sizes: Integers = self.requests.size[rows][self.requests.op[rows] == Op.ALLOC]
        return sizes

    def of(self, sessions: int) -> tuple[Requests, Integers]:
        """The requests of ``sessions`` (at least three), and for each session where its prompt ends among them."""
        assert sessions >= CALIBRATION_SESSIONS
        names = list(_names(sessions))
        made = [self.units[_pattern(name)].made for name in names]
        first = dict(zip(names, np.cumsum([0, *made[:-1]]).tolist(), strict=True))
        blocks = [self._blocks(name, first, sessions) for name in names]
        rows = np.concatenate([self.units[_pattern(name)].rows for name in names])
        repeated = replace(
            self.requests.rearranged(rows),
            block=np.concatenate(blocks).astype(np.int32),
            blocks=sum(made),
        )
        possible = _possible(repeated)
        ends = np.searchsorted(possible, np.cumsum([len(part) for part in blocks]))
        return repeated.rearranged(possible), ends[1 : sessions + 1]

    def _blocks(self, name: UnitName, first: dict[UnitName, int], sessions: int) -> Integers:
        """The block of each row when ``name`` plays its pattern; -1 where there is none."""
        unit = self.units[_pattern(name)]
        starts = np.array([first[_resolve(owner, name, sessions)] for owner in unit.owners] or [0])
        return np.where(unit.owner < 0, -1, starts[unit.owner] + unit.place)


def _names(sessions: int) -> Iterator[UnitName]:
    yield "load", 0
    for kind in ("prefill", "decode"):
        for session in range(sessions):
            yield kind, session


def _pattern(name: UnitName) -> UnitName:
    kind, session = name
    return kind, min(session, LAST)


def _resolve(owner: UnitName, playing: UnitName, sessions: int) -> UnitName:
    """Which unit the pattern means when ``playing`` plays it: sessions are counted from the one that plays.

    The decoding of the first two follows all prompts, so the calibration's last prompt stands for the last there is.
    """
    kind, session = owner
    playing_kind, now = playing
    if now > LAST:
        return (kind, session + now - LAST) if session else owner
    if playing_kind == "decode" and kind == "prefill" and session == LAST and now < LAST:
        return kind, sessions - 1
    return owner


def _possible(requests: Requests) -> Integers:
    """The rows that can be carried out: a block is released once, after it was allocated.

    Where sessions are repeated, a unit may mean a block that its predecessor has released already.
    """
    op, block = requests.op, requests.block.astype(np.int64)
    every = np.arange(len(op))
    allocated = np.full(requests.blocks, len(op))
    allocated[block[op == Op.ALLOC]] = every[op == Op.ALLOC]
    releases = _first_of_each(every[(op == Op.FREE) | (op == Op.HOLD)], block, allocated)
    held = np.full(requests.blocks, len(op))
    holds = releases[op[releases] == Op.HOLD]
    held[block[holds]] = holds
    completions = _first_of_each(every[op == Op.COMPLETE], block, held)
    others = every[(op != Op.FREE) & (op != Op.HOLD) & (op != Op.COMPLETE)]
    return np.sort(np.concatenate((others, releases, completions)))


def _first_of_each(rows: Integers, block: Integers, after: Integers) -> Integers:
    """Of ``rows``, the first of each block that stands behind ``after[block]``."""
    rows = rows[rows > after[block[rows]]]
    return rows[np.unique(block[rows], return_index=True)[1]]


def session_stream(recording: Recording) -> SessionStream:
    """Cut the trace of a ``fill`` run with three sessions into its units.

    Raises:
        VramdocError: the recording holds no trace of three sessions, or one that cannot be replayed.
    """
    path = recording.snapshot_path
    starts, names, end = _units(recording)
    if path is None or len(names) != 1 + 2 * CALIBRATION_SESSIONS:
        raise UnreadableInput("the calibration run left no trace of three sessions")
    recorded = replayable(read_snapshot(path), release=recording.manifest.versions.get("torch"))
    if not recorded.from_the_start:
        raise UnreadableInput("the trace of the calibration run does not begin with its program")
    requests = recorded.requests
    time = recorded.trace.time_us[requests.event]
    # what comes later is the program's end, which lets go of everything
    rows = np.flatnonzero(time <= end)
    unit = np.maximum(np.searchsorted(starts, time[rows], side="right") - 1, 0)
    owner, place = np.full(requests.blocks, -1), np.zeros(requests.blocks, np.int64)
    parts = [rows[unit == index] for index in range(len(names))]
    for index, part in enumerate(parts):
        made = requests.block[part][requests.op[part] == Op.ALLOC]
        owner[made], place[made] = index, np.arange(len(made))
    units = {
        name: _unit(requests, part, owner, place, names, index)
        for index, (name, part) in enumerate(zip(names, parts, strict=True))
    }
    return SessionStream(requests=requests, units=units)


def _unit(
    requests: Requests,
    rows: Integers,
    owner: Integers,
    place: Integers,
    names: list[UnitName],
    index: int,
) -> Unit:
    block = requests.block[rows]
    owners, inverse = np.unique(np.where(block < 0, -1, owner[block]), return_inverse=True)
    known = owners >= 0
    return Unit(
        rows=rows,
        owner=np.where(known, np.cumsum(known) - 1, -1)[inverse],
        place=place[block],
        owners=tuple(names[item] for item in owners[known].tolist()),
        made=int((owner[requests.block[rows]] == index)[requests.op[rows] == Op.ALLOC].sum()),
    )


def _units(recording: Recording) -> tuple[Integers, list[UnitName], int]:
    """When each unit started, what it is, and when the last one ended."""
    phases = [
        phase for phase in recording.manifest.phases if phase.name in {"load", "prefill", "decode"}
    ]
    names = [(phase.name, int(phase.detail.get("session", 0))) for phase in phases]
    starts = np.array([phase.started_us for phase in phases], np.int64)
    return starts, names, (phases[-1].ended_us or 0) if phases else 0
