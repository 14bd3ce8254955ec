"""What one more session asks of the allocator, taken from a recording of three: so that any number can be simulated.

In the workload ``fill`` every session does the same: it reads its prompt, and decodes one token when all are there. The
first session also pays what is paid once (cuBLAS workspaces), and the second meets what the first left behind, so the third
is the pattern. ``steady`` says whether the second and the third really asked for the same; if not, simulating more of
them would be a guess. It knows no allocator rule (``simulate``).
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Sequence
from dataclasses import dataclass

from vramdoc.errors import UnreadableInput
from vramdoc.record.recording import Recording
from vramdoc.snapshot.reader import read_snapshot

CALIBRATION_SESSIONS = 3

Unit = tuple[str, int]
"""``("load", 0)``, ``("prefill", session)`` or ``("decode", session)``."""
Name = tuple[str, int, int]
"""A block: its unit and its place among the unit's allocations."""


@dataclass(frozen=True, slots=True)
class Alloc:
    """Request ``size`` bytes on ``stream``."""

    size: int
    stream: int


@dataclass(frozen=True, slots=True)
class Free:
    """Give back what was requested under ``name``."""

    name: Name


Operation = Alloc | Free


@dataclass(frozen=True, slots=True, kw_only=True)
class SessionStream:
    """The operations of each unit of a calibration run, in order."""

    units: dict[Unit, tuple[Operation, ...]]

    @property
    def steady(self) -> bool:
        """Whether sessions 1 and 2 asked for the same sizes in the same order."""
        return all(
            self._sizes((kind, 1)) == self._sizes((kind, 2)) for kind in ("prefill", "decode")
        )

    def _sizes(self, unit: Unit) -> list[int]:
        return [item.size for item in self.units.get(unit, ()) if isinstance(item, Alloc)]


def session_stream(recording: Recording) -> SessionStream:
    """Cut the trace of a ``fill`` run with three sessions into its units.

    Raises:
        UnreadableInput: the recording holds no trace, or is of another workload.
    """
    path = recording.snapshot_path
    if path is None:
        raise UnreadableInput("the calibration run left no snapshot")
    trace = next((trace for trace in read_snapshot(path).traces if len(trace)), None)
    starts, names, end = _units(recording)
    if trace is None or len(names) != 1 + 2 * CALIBRATION_SESSIONS:
        raise UnreadableInput("the calibration run left no trace of three sessions")
    units: dict[Unit, list[Operation]] = {name: [] for name in names}
    allocated: dict[Unit, int] = dict.fromkeys(names, 0)
    live: dict[int, Name] = {}
    columns = zip(trace.action.tolist(), trace.address.tolist(), trace.size.tolist(), trace.stream.tolist(), trace.time_us.tolist(), strict=True)  # fmt: skip
    for action, address, size, stream, time in columns:
        kind = trace.actions[action]
        if time > end:
            break  # the program is over and lets go of everything
        if kind not in {"alloc", "free_completed"}:
            continue
        unit = names[max(0, bisect_right(starts, time) - 1)]
        if kind == "alloc":
            live[address] = (*unit, allocated[unit])
            allocated[unit] += 1
            units[unit].append(Alloc(size, stream))
        elif address in live:  # else it lived before the trace began
            units[unit].append(Free(live.pop(address)))
    return SessionStream(units={name: tuple(operations) for name, operations in units.items()})


def _units(recording: Recording) -> tuple[Sequence[int], Sequence[Unit], int]:
    """When each unit started, what it is, and when the last one ended."""
    phases = [
        phase for phase in recording.manifest.phases if phase.name in {"load", "prefill", "decode"}
    ]
    names = [(phase.name, int(phase.detail.get("session", 0))) for phase in phases]
    return (
        [phase.started_us for phase in phases],
        names,
        (phases[-1].ended_us or 0) if phases else 0,
    )
