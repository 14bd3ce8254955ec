"""Feed a pickle to the compiled scanner and hand on what it found: plain containers, and columns in place of events.

``columns`` is the reference: for every file that PyTorch writes both give equal snapshots (tests/snapshot/test_scanner.py).
"""

from __future__ import annotations

import ctypes
import struct
from collections import Counter
from dataclasses import dataclass
from typing import Any, BinaryIO

import numpy as np
import numpy.typing as npt

from vramdoc.errors import UnreadableInput
from vramdoc.snapshot.columns import NO_ACTION, NO_INTEGER, NO_LIST
from vramdoc.snapshot.model import Frame, StackTable, Trace
from vramdoc.snapshot.unpickle import REFUSED_HINT

CHUNK_BYTES = 1 << 20
_FAILED, _WANTS_MORE, _ENDED = -1, 0, 1
(
    _NONE, _FALSE, _TRUE, _INT, _REAL, _TEXT, _OPAQUE, _LIST, _TUPLE, _DICT, _EVENTS, _STACK, _BIG,
) = range(13)  # fmt: skip
"""Words that open a value in the tree (scanner.c, T_NONE and following)."""
BEYOND_64_BITS = 1 << 64
"""Stands for an integer of more than 64 bits; the schema replaces it as it would the integer itself."""


class _Results(ctypes.Structure):
    """Where the results lie (scanner.c, Results)."""

    _fields_ = [
        *((name, ctypes.c_void_p) for name in ("action", "address", "size", "stream", "time_us", "pool", "stack")),
        ("rows", ctypes.c_uint64),
        ("tree", ctypes.c_void_p), ("tree_count", ctypes.c_uint64),
        ("frame_indices", ctypes.c_void_p), ("frame_indices_count", ctypes.c_uint64),
        ("stack_ends", ctypes.c_void_p), ("stack_ends_count", ctypes.c_uint64),
        ("frames", ctypes.c_void_p), ("frames_count", ctypes.c_uint64),
        ("texts", ctypes.c_void_p), ("texts_count", ctypes.c_uint64),
        ("characters", ctypes.c_void_p), ("characters_count", ctypes.c_uint64),
        ("action_texts", ctypes.c_void_p), ("actions", ctypes.c_uint64),
        ("pools", ctypes.c_void_p), ("pool_count", ctypes.c_uint64),
        ("foreign", ctypes.c_uint64),
    ]  # fmt: skip


@dataclass(frozen=True, slots=True)
class ScannedEvents:
    """A list of events that became rows of the columns."""

    length: int
    """Items of the list, of which some may be no events."""
    runs: tuple[tuple[int, int], ...]
    """(first row, rows), in order."""


@dataclass(frozen=True, slots=True)
class StackCode:
    """A list of frames that became a stack."""

    code: int


def scan(library: ctypes.CDLL, stream: BinaryIO) -> tuple[Any, ScannedColumns]:
    """Read one pickle from ``stream``.

    Returns:
        The plain containers, in which lists of events are ScannedEvents and stacks are StackCodes, and what these refer to.

    Raises:
        UnreadableInput: truncated, damaged, or asking for anything but plain values.
    """
    handle = _Handle(library)
    state = _WANTS_MORE
    while state == _WANTS_MORE:
        chunk = stream.read(CHUNK_BYTES)
        if not chunk:
            raise UnreadableInput("the pickle is truncated or damaged: it has no end")
        state = library.scanner_feed(handle.pointer, chunk, ctypes.c_uint64(len(chunk)))
    if state != _ENDED or library.scanner_finish(handle.pointer) != 0:
        library.scanner_error.restype = ctypes.c_char_p
        error = library.scanner_error(handle.pointer).decode("utf-8", "replace")
        printable = "".join(c if c.isprintable() else "?" for c in error)
        hint = REFUSED_HINT if "refused" in printable else ""
        raise UnreadableInput(f"the pickle cannot be used: {printable}", hint)
    columns = ScannedColumns(handle)
    return columns.plain(), columns


class _Handle:
    """The scanner's memory, freed when the last array that lies in it is gone."""

    def __init__(self, library: ctypes.CDLL) -> None:
        library.scanner_new.restype = ctypes.c_void_p
        self._free = library.scanner_free
        address = library.scanner_new()
        if not address:
            raise MemoryError
        self.pointer = ctypes.c_void_p(address)
        self.library = library

    def __del__(self) -> None:
        if hasattr(self, "pointer"):
            self._free(self.pointer)


class _Memory:
    """One stretch of the scanner's memory, which numpy can look at and which keeps the scanner alive."""

    def __init__(self, handle: _Handle, address: int, length: int) -> None:
        self._handle = handle
        self.__array_interface__ = {
            "version": 3,
            "shape": (length,),
            "typestr": "|u1",
            "data": (address, True),
        }


class ScannedColumns:
    """Frames, stacks and events of one scanned pickle."""

    def __init__(self, handle: _Handle) -> None:
        self._handle = handle
        self._found = _Results()
        handle.library.scanner_results(handle.pointer, ctypes.byref(self._found))
        found = self._found
        texts = self._array(
            "texts", [("start", np.uint64), ("length", np.uint32), ("_", np.uint32)]
        )
        characters = self._array("characters", np.uint8).tobytes()
        try:
            self._texts = [
                characters[start : start + length].decode("utf-8", "surrogatepass")
                for start, length, _ in texts.tolist()
            ]
        except UnicodeDecodeError as error:
            raise UnreadableInput("the pickle is damaged: a text in it is no UTF-8") from error
        actions = self._array("action_texts", np.uint32, found.actions)
        self._actions = tuple(self._texts[i] for i in actions)
        pools = self._array("pools", np.int64, 2 * found.pool_count).reshape(-1, 2)
        self._pools = tuple((int(first), int(second)) for first, second in pools)
        frames = self._array(
            "frames", [("file", np.uint32), ("name", np.uint32), ("line", np.int64)]
        )
        self._frames = tuple(
            Frame(self._texts[file], line, self._texts[name])
            for file, name, line in frames.tolist()
        )
        self._table = StackTable(
            frames=self._frames,
            indices=self._array("frame_indices", np.int32).copy(),
            ends=self._array("stack_ends", np.int64).copy(),
        )

    def _array(self, name: str, dtype: npt.DTypeLike, count: int | None = None) -> npt.NDArray[Any]:
        length = getattr(self._found, f"{name}_count") if count is None else count
        if not length:
            return np.empty(0, dtype)
        kind = np.dtype(dtype)
        memory = _Memory(self._handle, getattr(self._found, name), length * kind.itemsize)
        return np.asarray(memory).view(kind)

    def plain(self) -> Any:
        """The containers that are left when events and stacks are taken out."""
        return _Tree(self._array("tree", np.int64).tolist(), self._texts).value()

    # What follows is the interface of columns.StackInterner and columns.trace_columns, for the schema.

    def code(self, frames: Any) -> int:
        """The code of a stack; -1 for anything else."""
        return frames.code if isinstance(frames, StackCode) else -1

    def stack(self, code: int) -> tuple[Frame, ...]:
        """The stack of a code."""
        return self._table[code]

    def table(self) -> StackTable:
        """All stacks by code."""
        return self._table

    def trace(self, device: int, events: Any, problems: Counter[str]) -> Trace:
        """The columns of one list of events."""
        runs: tuple[tuple[int, int], ...] = ()
        left_out = 0
        if isinstance(events, ScannedEvents):
            runs = events.runs
            left_out = events.length - sum(rows for _, rows in runs)
        elif isinstance(events, list):
            left_out = len(events)
        else:
            problems[NO_LIST.format(device)] += 1
        if left_out:
            problems[NO_ACTION.format(device)] += left_out
        if self._found.foreign:
            problems[NO_INTEGER] += self._found.foreign
            self._found.foreign = 0
        return Trace(
            device=device,
            actions=self._actions,
            action=self._column("action", np.uint8, runs),
            address=self._column("address", np.int64, runs),
            size=self._column("size", np.int64, runs),
            stream=self._column("stream", np.int64, runs),
            time_us=self._column("time_us", np.int64, runs),
            pool=self._column("pool", np.int16, runs),
            stack=self._column("stack", np.int32, runs),
            pools=self._pools,
            stacks=self._table,
        )

    def _column(
        self, name: str, dtype: npt.DTypeLike, runs: tuple[tuple[int, int], ...]
    ) -> npt.NDArray[Any]:
        column = self._array(name, dtype, self._found.rows)
        if len(runs) == 1:
            first, rows = runs[0]
            return column[first : first + rows]
        parts = [column[first : first + rows] for first, rows in runs]
        return np.concatenate(parts) if parts else column[:0]


class _Tree:
    """Builds plain containers from the scanner's words."""

    def __init__(self, words: list[int], texts: list[str]) -> None:
        self._words = iter(words)
        self._texts = texts

    def value(self) -> Any:
        words = self._words
        kind = next(words)
        if kind == _INT:
            return next(words)
        if kind == _TEXT:
            return self._texts[next(words)]
        if kind == _STACK:
            return StackCode(next(words))
        if kind == _DICT:
            pairs = [(self.value(), self.value()) for _ in range(next(words))]
            return {key: value for key, value in pairs if isinstance(key, (str, int, float))}
        if kind in (_LIST, _TUPLE):
            items = [self.value() for _ in range(next(words))]
            return tuple(items) if kind == _TUPLE else items
        return self._rarer(kind)

    def _rarer(self, kind: int) -> Any:
        if kind == _EVENTS:
            length, runs = next(self._words), next(self._words)
            return ScannedEvents(
                length, tuple((next(self._words), next(self._words)) for _ in range(runs))
            )
        if kind == _REAL:
            return struct.unpack("<d", struct.pack("<q", next(self._words)))[0]
        constants = {_FALSE: False, _TRUE: True, _BIG: BEYOND_64_BITS, _OPAQUE: "...", _NONE: None}
        return constants[kind]
