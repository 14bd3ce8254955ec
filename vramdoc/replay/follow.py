"""Following a recording: every event that a replay makes is compared with the recorded one, and the recorded driver answers.

The driver of the recording gave out certain addresses and failed at certain moments; both can be read off the next recorded
event. So a replay under the recorded config either makes the same events to the end, or stops at the first that differs.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

from vramdoc.allocator.device import PAGE, Device
from vramdoc.allocator.sizes import SMALL_BUFFER
from vramdoc.errors import VramdocError
from vramdoc.replay.engines import Divergence
from vramdoc.replay.from_trace import FREE_REQUESTED, OOM

if TYPE_CHECKING:
    from vramdoc.snapshot.model import Trace

_RELEASES = frozenset(("segment_free", "segment_unmap", "oom", "free_completed"))
"""What follows a cudaMalloc that failed."""


class Diverged(VramdocError):
    """The replay made another event than the recording."""

    def __init__(self, divergence: Divergence) -> None:
        super().__init__(
            f"event {divergence.event}: {divergence.expected} became {divergence.actual}"
        )
        self.divergence = divergence


def beyond(trace: Trace) -> int:
    """An address above all recorded ones."""
    return -(-int(trace.address.max(initial=0)) // PAGE + 1) * PAGE


class Recording:
    """The recorded events, with a cursor. It stands in for the allocator's own list of events."""

    def __init__(self, trace: Trace) -> None:
        keep = trace.action <= OOM
        self._index = keep.nonzero()[0].tolist()
        self._rows = list(
            zip(
                [trace.actions[code] for code in trace.action[keep].tolist()],
                trace.address[keep].tolist(),
                trace.size[keep].tolist(),
                trace.stream[keep].tolist(),
                strict=True,
            )
        )
        self._end = len(trace)
        self._silent = () if (trace.action == FREE_REQUESTED).any() else ("free_requested",)
        """Actions that were not recorded: all of them are missing, so they are left out here too."""
        self.cursor = 0
        self.beyond = beyond(trace)

    def peek(self) -> tuple[str, int, int, int] | None:
        """The next recorded event: action, address, size, stream."""
        return self._rows[self.cursor] if self.cursor < len(self._rows) else None

    def maps_to_come(self) -> Iterator[tuple[int, int, int]]:
        """Address, size and stream of every recorded segment_map from here on."""
        for place in range(self.cursor, len(self._rows)):
            action, address, size, stream = self._rows[place]
            if action == "segment_map":
                yield address, size, stream

    def append(self, event: tuple[str, int, int, int, object]) -> None:
        """Take what the allocator recorded.

        Raises:
            Diverged: it is not the next recorded event.
        """
        action, address, size, stream, _ = event
        if action in self._silent:
            return
        expected = self.peek()
        if expected is not None and action == "oom" == expected[0]:
            # The free memory of an oom belongs to the whole device, other processes included.
            address = expected[1]
        if expected != (action, address, size, stream):
            raise self.difference(describe(action, address, size, stream))
        self.cursor += 1

    def difference(self, actual: str) -> Diverged:
        """The error that says what the replay did instead of the next recorded event."""
        expected = self.peek()
        return Diverged(
            Divergence(
                event=self._index[self.cursor] if expected else self._end,
                expected=describe(*expected) if expected else "the end of the trace",
                actual=actual,
            )
        )


def describe(action: str, address: int, size: int, stream: int) -> str:
    """One event in a line."""
    return f"{action} {address:#x} {size} bytes on stream {stream:#x}"


class FollowingDevice(Device):
    """A device whose driver answers as the recorded one did."""

    def __init__(self, capacity: int, recording: Recording, *, in_use: int = 0) -> None:
        super().__init__(capacity, in_use=in_use, base=recording.beyond)
        self._recording = recording
        self.ranges: list[tuple[int, int, int, int]] = []
        """Address, size, stream and page of every expandable range there is."""

    def malloc(self, size: int) -> int | None:
        """The address of the next recorded segment_alloc, or a failure where the recording goes on to free memory."""
        following = self._recording.peek()
        if following is None or following[0] in _RELEASES:
            return None
        if following[0] != "segment_alloc" or following[2] != size:
            raise self._recording.difference(f"cudaMalloc of {size} bytes")
        self.adopt(following[1], size)
        return following[1]

    def reserve(self, size: int, *, stream: int = 0, page: int = PAGE) -> int:
        """A range that begins where the recording maps pages of this stream and kind outside all its ranges so far."""
        mine = [
            range(at, at + length)
            for at, length, of, step in self.ranges
            if (of, step) == (stream, page)
        ]
        for address, mapped, of in self._recording.maps_to_come():
            kind = SMALL_BUFFER if mapped == SMALL_BUFFER else page
            if of == stream and kind == page and not any(address in known for known in mine):
                break
        else:
            address = super().reserve(size)
        self.ranges.append((address, size, stream, page))
        return address

    def unreserve(self, address: int) -> None:
        """The range is gone; the recording may map elsewhere next."""
        self.ranges = [known for known in self.ranges if known[0] != address]

    def map(self, address: int, size: int) -> bool:
        """Whether the recording mapped pages here."""
        following = self._recording.peek()
        if following is None or following[0] in _RELEASES:
            return False
        if following[:3] != ("segment_map", address, size):
            raise self._recording.difference(f"mapping {address:#x}, {size} bytes")
        self.used += size
        return True
