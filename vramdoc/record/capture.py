"""What a recorded program prints: passed on as it came, and kept where that changes nothing for the program.

    a pipe       through a pipe of ours: the program sees no difference
    a file       left alone; what was added to it is read afterwards
    a terminal   left alone and not kept: a program behaves otherwise off a terminal

Both streams on one file share one pipe, so their order stays.
"""

from __future__ import annotations

import contextlib
import os
import stat
import subprocess
import tempfile
import threading
from pathlib import Path
from types import TracebackType
from typing import Any, BinaryIO, cast

from vramdoc.errors import StorageProblem
from vramdoc.record.child_process import BoundedLog
from vramdoc.record.recording import OUTPUT
from vramdoc.record.storage import write_atomically

_STREAMS = {"stdout": 1, "stderr": 2}
_LEFT_BEHIND_S = 2.0
"""How long output is awaited from what a finished program left running, where the output is ours alone."""


class Capture:
    """The streams for one program. ``only_capture`` keeps its output from our own stdout and stderr."""

    def __init__(self, *, only_capture: bool) -> None:
        self.only_capture = only_capture
        self.streams: dict[str, Any] = {}
        self._store = tempfile.TemporaryFile()  # noqa: SIM115 # closed in __exit__
        self._log = BoundedLog(self._store.fileno())
        self._pumps: list[threading.Thread] = []
        self._files: list[tuple[int, int]] = []
        self._plan()

    def __enter__(self) -> Capture:
        return self

    def __exit__(
        self,
        _kind: type[BaseException] | None,
        _error: BaseException | None,
        _traceback: TracebackType | None,
    ) -> None:
        self._store.close()

    def started(self, child: subprocess.Popen[bytes]) -> None:
        """Begin to read what the program prints."""
        for name, descriptor in _STREAMS.items():
            pipe = cast("BinaryIO | None", getattr(child, name))
            if pipe is not None:
                onward = None if self.only_capture else descriptor
                pump = threading.Thread(target=self._pump, args=(pipe, onward), daemon=True)
                pump.start()
                self._pumps.append(pump)

    def finish(self) -> None:
        """Read to the end, which comes when the last process that could still print has closed the stream."""
        for pump in self._pumps:
            pump.join(_LEFT_BEHIND_S if self.only_capture else None)
        for descriptor, start in self._files:
            with (
                contextlib.suppress(OSError),
                Path(f"/proc/self/fd/{descriptor}").open("rb") as file,
            ):
                file.seek(start)
                while chunk := file.read(1 << 16):
                    self._log.write(chunk)
        self._log.close()

    @property
    def note(self) -> str:
        """What the reader of a recording must know about its output; empty when all of it was kept."""
        if self.only_capture or not any(os.isatty(number) for number in _STREAMS.values()):
            return ""
        return "What the program printed went to a terminal and was not kept: its traceback was, messages of the driver were not."

    def keep(self, folder: Path) -> None:
        """Put the output into a recording; it is left out where the disk has no room for it."""
        if os.fstat(self._store.fileno()).st_size:
            self._store.seek(0)
            with contextlib.suppress(StorageProblem):
                write_atomically(folder / OUTPUT, self._copy)

    def kept(self) -> bytes:
        """The output itself, as far as it was kept: for a program that left no recording to put it into."""
        self._store.seek(0)
        return self._store.read()

    def _plan(self) -> None:
        if self.only_capture:
            self.streams = {"stdout": subprocess.PIPE, "stderr": subprocess.STDOUT}
            return
        states = {name: _state(descriptor) for name, descriptor in _STREAMS.items()}
        for name, descriptor in _STREAMS.items():
            state = states[name]
            is_second = name == "stderr" and state is not None and _is_same(state, states["stdout"])
            if state is None:
                continue
            if stat.S_ISFIFO(state.st_mode):
                self.streams[name] = subprocess.STDOUT if is_second else subprocess.PIPE
            elif stat.S_ISREG(state.st_mode) and not is_second:
                self._files.append((descriptor, _end_of(descriptor)))

    def _pump(self, pipe: BinaryIO, onward: int | None) -> None:
        with pipe:
            while chunk := os.read(pipe.fileno(), 1 << 16):
                self._log.write(chunk)
                try:
                    _write_all(onward, chunk)
                except OSError:
                    return  # our reader is gone; closing the pipe tells the program, as it would have been told

    def _copy(self, stream: BinaryIO) -> None:
        while chunk := self._store.read(1 << 16):
            stream.write(chunk)


def _write_all(descriptor: int | None, data: bytes) -> None:
    view = memoryview(data)
    while view and descriptor is not None:
        view = view[os.write(descriptor, view) :]


def _state(descriptor: int) -> os.stat_result | None:
    try:
        return os.fstat(descriptor)
    except OSError:
        return None


def _is_same(one: os.stat_result, other: os.stat_result | None) -> bool:
    return other is not None and (one.st_dev, one.st_ino) == (other.st_dev, other.st_ino)


def _end_of(descriptor: int) -> int:
    """Where the program's output will begin in a file that may have content already."""
    try:
        position = os.lseek(descriptor, 0, os.SEEK_CUR)
    except OSError:
        return 0
    return position or os.fstat(descriptor).st_size
