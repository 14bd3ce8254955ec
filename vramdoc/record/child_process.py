"""Run one child to its end: feed it, keep a bounded copy of what it prints, hand on what it reports, leave nothing behind.

It knows neither recordings nor GPUs. Works on Linux, macOS and Windows; process groups are used where they exist.

The child's stdin stays open for as long as this process lives: its end is how the child learns that nobody waits for it.
"""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import threading
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from typing import IO, cast

from vramdoc.units import MIB

GRACE_S = 5.0
"""From asking a child to end until it is made to: it may be writing a snapshot."""

_HEAD_BYTES, _TAIL_BYTES = 4 * MIB, MIB
"""What is kept of a flood: a program's start says what it is, its end says how it failed."""


class BoundedLog:
    """Appends to an open file up to a bound, then remembers only the end, which ``close`` writes behind a mark.

    A full disk makes it forget, never raise: a program must not stop because its output cannot be kept. ``problem``
    then holds the reason.
    """

    def __init__(self, handle: int, head: int = _HEAD_BYTES, tail: int = _TAIL_BYTES) -> None:
        self.problem: OSError | None = None
        self._handle = handle
        self._room, self._tail_bytes = head, tail
        self._tail: deque[bytes] = deque()
        self._held = 0
        self._left_out = 0
        self._lock = threading.Lock()

    def write(self, data: bytes) -> None:
        """Keep ``data``, or the part of it that there is room for. Both streams may come at once."""
        with self._lock:
            head, rest = data[: self._room], data[self._room :]
            if head:
                self._room -= len(head)
                self._append(head)
            if rest:
                self._tail.append(rest)
                self._held += len(rest)
            while self._tail and self._held - len(self._tail[0]) >= self._tail_bytes:
                dropped = len(self._tail.popleft())
                self._held -= dropped
                self._left_out += dropped

    def close(self) -> None:
        """Write the end of a flood. The file stays its owner's."""
        if self._left_out:
            mark = f"\n[{self._left_out} bytes of output were left out here]\n".encode()
            self._append(mark)
        for piece in self._tail:
            self._append(piece)

    def _append(self, data: bytes) -> None:
        if self.problem is not None:
            return
        view = memoryview(data)
        try:
            while view:
                view = view[os.write(self._handle, view) :]
        except OSError as error:
            self.problem = error


def run_child(
    argv: Sequence[str],
    *,
    environment: Mapping[str, str],
    request: bytes,
    log: BoundedLog,
    report: Callable[[bytes], None],
    timeout_s: float | None,
) -> int | None:
    """Run ``argv`` until it ends and return its status (negative for a signal), or None when it ran out of time.

    ``request`` is written to its stdin. Lines on its stdout go to ``report``; what it prints on stderr goes to ``log``. On any
    exception here, an interrupt included, the child and its process group are ended before it goes on.
    """
    with subprocess.Popen(
        argv,
        env=dict(environment),
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        start_new_session=True,
    ) as child:
        stdin, stdout, stderr = (
            cast("IO[bytes]", stream) for stream in (child.stdin, child.stdout, child.stderr)
        )
        readers = [
            threading.Thread(target=_each_line, args=(stdout, report), daemon=True),
            threading.Thread(target=_each_chunk, args=(stderr, log.write), daemon=True),
        ]
        try:
            for reader in readers:
                reader.start()
            with contextlib.suppress(BrokenPipeError):  # it died first; its status says how
                stdin.write(request)
                stdin.flush()
            with contextlib.suppress(subprocess.TimeoutExpired):
                child.wait(timeout_s)
            timed_out = child.poll() is None
            end_group(child)
            for reader in readers:
                reader.join()
        except BaseException:
            end_group(child)
            raise
        return None if timed_out else child.returncode


def end_child(child: subprocess.Popen[bytes]) -> None:
    """End a child: politely first, then for certain."""
    if child.poll() is None:
        child.terminate()
        with contextlib.suppress(subprocess.TimeoutExpired):
            child.wait(GRACE_S)
        child.kill()
    child.wait()


def end_group(child: subprocess.Popen[bytes]) -> None:
    """End a child that has its own session, and what it started; of one that ended by itself, only the latter."""
    if not hasattr(os, "killpg"):
        end_child(child)
        return
    if child.poll() is None:
        _signal_group(child.pid, signal.SIGTERM)
        with contextlib.suppress(subprocess.TimeoutExpired):
            child.wait(GRACE_S)
    _signal_group(child.pid, signal.SIGKILL)
    child.wait()


def _signal_group(leader: int, number: signal.Signals) -> None:
    with contextlib.suppress(ProcessLookupError, PermissionError):
        os.killpg(leader, number)


def _each_line(stream: IO[bytes], report: Callable[[bytes], None]) -> None:
    while line := stream.readline(1 << 16):
        report(line)


def _each_chunk(stream: IO[bytes], keep: Callable[[bytes], None]) -> None:
    while chunk := stream.read1(1 << 16):  # type: ignore[attr-defined] # a BufferedReader
        keep(chunk)
