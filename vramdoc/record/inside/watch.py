"""A thread that writes snapshots while the program runs: by the clock, on SIGUSR1, and before SIGTERM ends the process.

It knows when to write, not what. The signals are taken only where the program left them at their defaults, and SIGTERM still
ends the process, with the same status, whatever the main thread is doing.
"""

from __future__ import annotations

import ctypes
import os
import select
import signal
import socket
import threading
import time
from collections.abc import Callable
from types import FrameType

from vramdoc.record.inside.descriptors import out_of_the_way

FIRST_S, USUAL_S = 1.0, 5.0
"""The first snapshot by the clock, and the least time between later ones. A run that is killed before the first leaves none."""

COST_SHARE = 0.01
"""Of the program's time, spent on snapshots by the clock at most; where one is expected to take more, it waits."""

_TAKEN = tuple(
    getattr(signal, name)
    for name in ("SIGUSR1", "SIGTERM")
    if os.name == "posix" and hasattr(signal, name)
)


class Watch:
    """``snapshot`` writes one, ``expected_s`` says how long that would take, ``end`` completes the recording for a signal.

    ``look`` is called in the main thread at SIGUSR1, whose variables it is to see; from another thread, what it looks at would
    live on while the program runs.
    """

    def __init__(
        self,
        snapshot: Callable[[], None],
        expected_s: Callable[[], float],
        end: Callable[[int], None],
        look: Callable[[], None],
        every_s: float | None,
    ) -> None:
        self._snapshot, self._expected_s = snapshot, expected_s
        self._end, self._look = end, look
        self._every_s = every_s
        receiver, sender = socket.socketpair()
        sender.settimeout(0)
        self._receiver, self._sender = (
            socket.socket(fileno=out_of_the_way(end.detach())) for end in (receiver, sender)
        )
        self._signals: tuple[signal.Signals, ...] = ()

    def start(self) -> None:
        """Take the signals that are free, and start the thread."""
        if threading.current_thread() is threading.main_thread():
            self._take_signals()
        threading.Thread(target=self._run, name="vramdoc", daemon=True).start()

    def leave(self) -> None:
        """Give the signals back: in a forked child, which has no such thread, and whose bytes would reach the parent's."""
        if self._signals:
            signal.set_wakeup_fd(-1)
        for number in self._signals:
            if signal.getsignal(number) == self._on_signal:
                signal.signal(number, signal.SIG_DFL)
        self._signals = ()

    def _take_signals(self) -> None:
        free = tuple(number for number in _TAKEN if signal.getsignal(number) is signal.SIG_DFL)
        before = signal.set_wakeup_fd(self._sender.fileno(), warn_on_full_buffer=False)
        if before != -1:  # an event loop listens already: then it is the program's
            signal.set_wakeup_fd(before)
            return
        for number in free:
            signal.signal(number, self._on_signal)
        self._signals = free

    def _on_signal(self, number: int, _frame: FrameType | None) -> None:
        """In the main thread. The C handler has woken the thread already, unless somebody else took the wakeup since."""
        listener = signal.set_wakeup_fd(-1)
        signal.set_wakeup_fd(listener, warn_on_full_buffer=False)
        if listener != self._sender.fileno():
            self._react(number)
        if number != signal.SIGTERM:
            self._look()

    def _run(self) -> None:
        last = time.monotonic()
        pause = self._every_s or FIRST_S
        while True:
            ready, _, _ = select.select([self._receiver], [], [], pause)
            if ready:
                for number in self._receiver.recv(64):
                    self._react(number)
                continue
            waited = time.monotonic() - last
            pause = still_to_wait(waited, self._expected_s()) if self._every_s is None else 0.0
            if not pause:
                self._snapshot()
                last, pause = time.monotonic(), self._every_s or USUAL_S

    def _react(self, number: int) -> None:
        # The program may have put a handler of its own there since.
        if number not in self._signals or signal.getsignal(number) != self._on_signal:
            return
        if number == signal.SIGTERM:
            self._end(number)
            _die_of(number)
        else:
            self._snapshot()


def still_to_wait(waited_s: float, expected_s: float) -> float:
    """Seconds until a snapshot of that cost takes no more than its share of the time since the last one."""
    return max(expected_s / COST_SHARE - waited_s, 0.0)


def _die_of(number: int) -> None:
    """End the process by the signal, as it would have ended without us. Python lets only the main thread reset a handler."""
    libc = ctypes.CDLL(None)
    libc.signal.argtypes, libc.signal.restype = (ctypes.c_int, ctypes.c_void_p), ctypes.c_void_p
    libc.signal(number, None)
    os.kill(os.getpid(), number)
