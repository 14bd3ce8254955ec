"""Interning: names to small codes, frames and stacks to indices, a list of event dicts to columns.

It is the reference for the compiled scanner, which fills the same columns without building the dicts. It knows a trace
event's keys (allocator-spec 8.4) and nothing about segments.
"""

from __future__ import annotations

from array import array
from collections import Counter
from collections.abc import Iterable, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

from vramdoc.errors import UnreadableInput
from vramdoc.snapshot.model import ACTIONS, Frame, StackTable, Trace

CHUNK = 1 << 16
"""Events converted, and let go, at a time."""
DEEPEST_STACK = 4096
"""Frames kept of one stack, innermost first. CPython's default recursion limit is 1000."""
LONG_STACK = 256
"""Frames from which on a list is remembered as an object: a hostile file can name one long list in a million events."""
MOST_REMEMBERED = 1 << 16
"""Stacks remembered by the identity of their frames; a key weighs some 40 bytes a frame."""
MOST_CODES = 255
"""Different actions, or pools, that a trace may name: the columns hold a byte and an int16."""
NO_LIST = "events of device {} are no list and were left out"
NO_ACTION = "events of device {} that name no action were left out"
NO_INTEGER = "values in trace events that are no 64-bit integers were replaced"
INT64 = range(-(1 << 63), 1 << 63)


def as_int(value: Any, default: int = 0) -> int:
    """``value`` where it is an integer that fits 64 bits, else ``default``."""
    return int(value) if isinstance(value, int) and value in INT64 else default


def as_text(value: Any, default: str = "") -> str:
    """``value`` where it is text, else ``default``."""
    return value if isinstance(value, str) else default


def as_pool_id(value: Any) -> tuple[int, int] | None:
    """A pool id in PyTorch's form, a pair of integers; None for anything else."""
    if isinstance(value, (tuple, list)) and len(value) == 2:
        first, second = as_int(value[0], -1), as_int(value[1], -1)
        return (first, second) if first >= 0 and second >= 0 else None
    return None


class PlainColumns:
    """Frames and stacks met so far, each kept once, and events as columns. Equal stacks get equal codes."""

    def __init__(self) -> None:
        self._frame_of_object: dict[int, int] = {}
        self._frame_of_value: dict[tuple[str, int, str], int] = {}
        self._stack_of_indices: dict[bytes, int] = {}
        self._frames: list[Frame] = []
        self._indices = array("i")
        self._ends = array("q", [0])
        self._stack_of_objects: dict[tuple[int, ...], int] = {}
        self._long: dict[int, int] = {}

    def code(self, frames: Any) -> int:
        """The code of one recorded stack; -1 for an absent, empty or malformed one."""
        if not isinstance(frames, (list, tuple)) or not frames:
            return -1
        if len(frames) > LONG_STACK:
            known = self._long.get(id(frames))
            if known is not None:
                return known
        # Most stacks are made of frames met before, in an order met before.
        objects = tuple(map(id, frames[:DEEPEST_STACK]))
        code = self._stack_of_objects.get(objects)
        if code is None:
            code = self._intern(frames)
            if len(self._stack_of_objects) > MOST_REMEMBERED:
                self._stack_of_objects.clear()
            self._stack_of_objects[objects] = code
        if len(frames) > LONG_STACK:
            self._long[id(frames)] = code
        return code

    def _intern(self, frames: Sequence[Any]) -> int:
        indices = array("i", map(self._frame, frames[:DEEPEST_STACK]))
        code = self._stack_of_indices.setdefault(indices.tobytes(), len(self._stack_of_indices))
        if code == len(self._ends) - 1:
            self._indices.extend(indices)
            self._ends.append(len(self._indices))
        return code

    def trace(self, device: int, events: Any, problems: Counter[str]) -> Trace:
        """Turn one device's events into columns. ``events`` is emptied on the way, so that memory falls as it is read.

        Args:
            device: index of the device.
            events: as recorded, oldest first.
            problems: counts what had to be left out, by sentence.

        Returns:
            The trace, without ``stacks``: the table is complete when all traces are read.
        """
        if not isinstance(events, list):
            problems[NO_LIST.format(device)] += 1
            events = []
        columns = _Columns(len(events))
        events.reverse()
        row = 0
        while events:
            chunk = events[: -CHUNK - 1 : -1]
            del events[-CHUNK:]
            kept = [event for event in chunk if isinstance(event, dict) and "action" in event]
            left_out = len(chunk) - len(kept)
            if left_out:
                problems[NO_ACTION.format(device)] += left_out
            columns.fill(row, kept, self, problems)
            self._long.clear()  # these lists are let go now, and others may get their addresses
            row += len(kept)
        return columns.trace(device, row)

    def _frame(self, frame: Any) -> int:
        index = self._frame_of_object.get(id(frame))
        if index is not None:
            return index
        get = frame.get if isinstance(frame, dict) else {}.get
        value = (as_text(get("filename"), "??"), as_int(get("line")), as_text(get("name"), "??"))
        index = self._frame_of_value.setdefault(value, len(self._frames))
        if index == len(self._frames):
            self._frames.append(Frame(*value))
        self._frame_of_object[id(frame)] = index
        return index

    def stack(self, code: int) -> tuple[Frame, ...]:
        """The stack of a code."""
        return tuple(
            self._frames[i] for i in self._indices[self._ends[code] : self._ends[code + 1]]
        )

    def table(self) -> StackTable:
        """All stacks by code."""
        return StackTable(
            frames=tuple(self._frames),
            indices=np.frombuffer(self._indices, dtype=np.int32).copy()
            if self._indices
            else np.empty(0, np.int32),
            ends=np.frombuffer(self._ends, dtype=np.int64).copy(),
        )


class _Columns:
    """The columns under construction."""

    def __init__(self, count: int) -> None:
        self.action = np.zeros(count, np.uint8)
        self.address = np.zeros(count, np.int64)
        self.size = np.zeros(count, np.int64)
        self.stream = np.zeros(count, np.int64)
        self.time_us = np.full(count, -1, np.int64)
        self.pool = np.full(count, -1, np.int16)
        self.stack = np.full(count, -1, np.int32)
        self.action_codes = _Codes("actions")
        self.action_codes.update((name, code) for code, name in enumerate(ACTIONS))
        self.pool_codes = _Codes("pools")

    def fill(
        self,
        row: int,
        events: Sequence[dict[Any, Any]],
        stacks: PlainColumns,
        problems: Counter[str],
    ) -> None:
        rows = slice(row, row + len(events))
        codes = self.action_codes
        actions = (event["action"] for event in events)
        self.action[rows] = [codes[name if isinstance(name, str) else "?"] for name in actions]
        # An ``oom`` has no address; what the driver had left stands in its place.
        address = [
            event["addr"] if "addr" in event else event.get("device_free", 0) for event in events
        ]
        self.address[rows] = _integers(address, 0, problems)
        self.size[rows] = _integers([event.get("size", 0) for event in events], 0, problems)
        self.stream[rows] = _integers([event.get("stream", 0) for event in events], 0, problems)
        self.time_us[rows] = _integers([event.get("time_us", -1) for event in events], -1, problems)
        self.stack[rows] = [stacks.code(event.get("frames")) for event in events]
        pools = [event.get("pool_id") for event in events]
        if any(pool is not None for pool in pools):
            self.pool[rows] = [self._pool(pool) for pool in pools]

    def _pool(self, value: Any) -> int:
        pool_id = as_pool_id(value)
        return -1 if pool_id is None else self.pool_codes[pool_id]

    def trace(self, device: int, rows: int) -> Trace:
        return Trace(
            device=device,
            actions=tuple(self.action_codes),
            action=self.action[:rows],
            address=self.address[:rows],
            size=self.size[:rows],
            stream=self.stream[:rows],
            time_us=self.time_us[:rows],
            pool=self.pool[:rows],
            stack=self.stack[:rows],
            pools=tuple(self.pool_codes),
            stacks=(),
        )


class _Codes(dict[Any, int]):
    """Numbers values in order of appearance."""

    def __init__(self, what: str) -> None:
        super().__init__()
        self._what = what

    def __missing__(self, value: Any) -> int:
        if len(self) > MOST_CODES:
            raise UnreadableInput(f"the trace names more than {MOST_CODES} different {self._what}")
        return self.setdefault(value, len(self))


def _integers(values: list[Any], default: int, problems: Counter[str]) -> npt.NDArray[np.int64]:
    """``values`` as a column; what is no 64-bit integer becomes ``default`` and is counted."""
    if set(map(type, values)) <= {int}:
        try:
            return np.array(values, dtype=np.int64)
        except OverflowError:
            pass  # One of them needs more than 64 bits: sort them out one by one.
    problems[NO_INTEGER] += _foreign(values)
    return np.array([as_int(value, default) for value in values], dtype=np.int64)


def _foreign(values: Iterable[Any]) -> int:
    return sum(not (isinstance(value, int) and value in INT64) for value in values)
