"""The order in which PyTorch visits streams: that of ska::flat_hash_map (c10/util/flat_hash_map.h) keyed by a CUDA stream.

When several streams' events are done at once, this order decides in which order blocks become free, and with it which
requested size a merged block still shows. Robin Hood hashing with the Fibonacci policy, as far as order goes.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator

_MIN_LOOKUPS = 4
_FIBONACCI = 11400714819323198485
_CUDA = 1
"""c10::DeviceType::CUDA."""

Slot = tuple[int, int]
"""Distance from the desired slot, and stream."""


def stream_hash(stream: int, device: int) -> int:
    """c10::Stream::hash of an external stream, whose id is its pointer; the default stream is 0."""
    return _CUDA << 56 | device << 48 | stream & ((1 << 48) - 1)


class FlatHash:
    """A set of streams that is visited in PyTorch's order."""

    __slots__ = ("_count", "_device", "_lookups", "_shift", "_size", "_slots")

    def __init__(self, device: int) -> None:
        self._device = device
        self._size = 0
        self._shift = 63
        self._lookups = _MIN_LOOKUPS - 1
        self._slots: list[Slot | None] = [None] * (self._lookups + 1)
        self._count = 0

    def __len__(self) -> int:
        return self._count

    def __iter__(self) -> Iterator[int]:
        return (slot[1] for slot in self._slots if slot is not None)

    def __contains__(self, stream: int) -> bool:
        return any(slot is not None and slot[1] == stream for slot in self._slots)

    def add(self, stream: int) -> None:
        """Insert a stream that may be there already (emplace)."""
        place = self._desired(stream)
        distance = 0
        while (slot := self._slots[place]) is not None and slot[0] >= distance:
            if slot[1] == stream:
                return
            place += 1
            distance += 1
        if not self._size or distance == self._lookups or self._count + 1 > self._size * 0.5:
            self._grow()
            self.add(stream)
            return
        self._settle(place, distance, stream)

    def clear(self) -> None:
        """Remove all; the table keeps its size, and so do later orders."""
        self._slots = [None] * len(self._slots)
        self._count = 0

    def visit(self, keep: Callable[[int], bool]) -> None:
        """Show each stream to ``keep`` and erase those it lets go of, as a loop with ``it = map.erase(it)`` does."""
        place = 0
        while place < len(self._slots):
            slot = self._slots[place]
            if slot is None or keep(slot[1]):
                place += 1
            else:
                self._erase(place)

    def _desired(self, stream: int) -> int:
        return (_FIBONACCI * stream_hash(stream, self._device)) % (1 << 64) >> self._shift

    def _settle(self, place: int, distance: int, stream: int) -> None:
        """Put the stream down; whoever is closer to home than the one in hand gives up the slot (emplace_new_key)."""
        first = place
        while (slot := self._slots[place]) is not None:
            if slot[0] < distance:
                self._slots[place] = (distance, stream)
                distance, stream = slot
            place += 1
            distance += 1
            if distance == self._lookups:
                held = self._slots[first]
                assert held is not None
                self._slots[first] = (held[0], stream)
                self._grow()
                self.add(held[1])
                return
        self._slots[place] = (distance, stream)
        self._count += 1

    def _erase(self, place: int) -> None:
        self._slots[place] = None
        self._count -= 1
        while (
            place + 1 < len(self._slots)
            and (slot := self._slots[place + 1]) is not None
            and slot[0] > 0
        ):
            self._slots[place], self._slots[place + 1] = (slot[0] - 1, slot[1]), None
            place += 1

    def _grow(self) -> None:
        before = list(self)
        self._size = max(4, 2 * self._size)
        self._shift = 64 - (self._size.bit_length() - 1)
        self._lookups = max(_MIN_LOOKUPS, self._size.bit_length() - 1)
        self._slots = [None] * (self._size + self._lookups)
        self._count = 0
        for stream in before:
            self.add(stream)
