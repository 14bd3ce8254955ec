"""The order in which PyTorch visits streams and private pools: that of ska::flat_hash_map (c10/util/flat_hash_map.h).

When several streams' events are done at once, this order decides in which order blocks become free, and with it which
requested size a merged block still shows. Robin Hood hashing with the Fibonacci policy, as far as order goes.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterator
from typing import Generic, TypeVar

_MIN_LOOKUPS = 4
_FIBONACCI = 11400714819323198485
_CUDA = 1
"""c10::DeviceType::CUDA."""

Key = TypeVar("Key", bound=Hashable)


def stream_hash(stream: int, device: int) -> int:
    """c10::Stream::hash of an external stream, whose id is its pointer; the default stream is 0."""
    return _CUDA << 56 | device << 48 | stream & ((1 << 48) - 1)


class FlatHash(Generic[Key]):
    """A set that is visited in PyTorch's order. Slots hold the distance from the desired slot, and the key."""

    __slots__ = ("_count", "_hash", "_lookups", "_shift", "_size", "_slots")

    def __init__(self, hashing: Callable[[Key], int]) -> None:
        self._hash = hashing
        self._size = 0
        self._shift = 63
        self._lookups = _MIN_LOOKUPS - 1
        self._slots: list[tuple[int, Key] | None] = [None] * (self._lookups + 1)
        self._count = 0

    def __len__(self) -> int:
        return self._count

    def __iter__(self) -> Iterator[Key]:
        return (slot[1] for slot in self._slots if slot is not None)

    def __contains__(self, key: Key) -> bool:
        return any(slot is not None and slot[1] == key for slot in self._slots)

    def add(self, key: Key) -> None:
        """Insert a key that may be there already (emplace)."""
        place = self._desired(key)
        distance = 0
        while (slot := self._slots[place]) is not None and slot[0] >= distance:
            if slot[1] == key:
                return
            place += 1
            distance += 1
        if not self._size or distance == self._lookups or self._count + 1 > self._size * 0.5:
            self._grow()
            self.add(key)
            return
        self._settle(place, distance, key)

    def clear(self) -> None:
        """Remove all; the table keeps its size, and so do later orders."""
        self._slots = [None] * len(self._slots)
        self._count = 0

    def visit(self, keep: Callable[[Key], bool]) -> None:
        """Show each key to ``keep`` and erase those it lets go of, as a loop with ``it = map.erase(it)`` does."""
        place = 0
        while place < len(self._slots):
            slot = self._slots[place]
            if slot is None or keep(slot[1]):
                place += 1
            else:
                self._erase(place)

    def _desired(self, key: Key) -> int:
        return (_FIBONACCI * self._hash(key)) % (1 << 64) >> self._shift

    def _settle(self, place: int, distance: int, key: Key) -> None:
        """Put the key down; whoever is closer to home than the one in hand gives up the slot (emplace_new_key)."""
        first = place
        while (slot := self._slots[place]) is not None:
            if slot[0] < distance:
                self._slots[place] = (distance, key)
                distance, key = slot
            place += 1
            distance += 1
            if distance == self._lookups:
                held = self._slots[first]
                assert held is not None
                self._slots[first] = (held[0], key)
                self._grow()
                self.add(held[1])
                return
        self._slots[place] = (distance, key)
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
        for key in before:
            self.add(key)
