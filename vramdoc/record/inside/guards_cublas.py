"""Guard: how much the driver had free at each cuBLAS handle's creation, in which thread and at which line.

A handle is created once a thread and device, outside torch's pool and without a retry (ATen/cuda/detail/DeviceThreadHandles.h), so
a margin that shrinks can be seen before it fails. The creations are seen by ``cublas_watch.c``.
"""

from __future__ import annotations

import ctypes
import os
import sys
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from vramdoc.record.inside.descriptors import out_of_the_way
from vramdoc.record.inside.user_line import calling_frame, place_of

Observe = Callable[..., None]
_LONGEST_S = 60.0
"""A creation that is not over by then is reported as it stands; on a busy machine the first one loads modules for seconds."""

_DRAIN_S = 1.0
"""How long the end of the program waits for the listener's last report."""


class _Creation(ctypes.Structure):
    """As in ``cublas_watch.c``."""

    _fields_ = (
        ("time_us", ctypes.c_int64),
        ("thread", ctypes.c_int64),
        ("free_before", ctypes.c_int64),
        ("free_after", ctypes.c_int64),
        ("device", ctypes.c_int32),
        ("status", ctypes.c_int32),
        ("done", ctypes.c_int32),
        ("unused", ctypes.c_int32),
    )


def install(observe: Observe) -> Callable[[], None] | None:
    """Start the listener; returns what waits until all has been reported, or None where the library is not loaded here."""
    library = ctypes.CDLL(None)
    if not hasattr(library, "vramdoc_cublas_listen"):
        return None
    library.vramdoc_cublas_creations.restype = ctypes.POINTER(_Creation)
    creations = library.vramdoc_cublas_creations()
    wake, wake_end = map(out_of_the_way, os.pipe())
    seen_end, seen = map(out_of_the_way, os.pipe())
    missed = library.vramdoc_cublas_count()
    reported: list[int] = []
    library.vramdoc_cublas_listen(wake_end, seen_end)

    def listen() -> None:
        while byte := os.read(wake, 1):
            creation = creations[byte[0]]
            place = _python_place(creation.thread)
            os.write(seen, b".")
            _report(observe, creation, place)
            reported.append(byte[0])

    def drain() -> None:
        deadline = time.monotonic() + _DRAIN_S
        while (
            len(reported) < library.vramdoc_cublas_count() - missed and time.monotonic() < deadline
        ):
            time.sleep(0.001)

    threading.Thread(target=listen, name="vramdoc-cublas", daemon=True).start()
    return drain


def _report(observe: Observe, creation: Any, place: dict[str, Any]) -> None:
    deadline = time.monotonic() + _LONGEST_S
    while not creation.done and time.monotonic() < deadline:
        time.sleep(0.001)
    observe(
        "cublas-handle",
        device=creation.device,
        driver_free_bytes=_known(creation.free_before),
        driver_free_after_bytes=_known(creation.free_after),
        ok=creation.status == 0,
        status=creation.status,
        **place,
    )


def _known(size: int) -> int | None:
    return None if size < 0 else size


def _python_place(native_id: int) -> dict[str, Any]:
    """The thread's name, and its line where it runs Python; autograd's threads do not."""
    for thread in threading.enumerate():
        if thread.native_id == native_id:
            frame = sys._current_frames().get(thread.ident or 0)  # noqa: SLF001 # the documented way to another thread's
            place = place_of(None if frame is None else calling_frame(frame))
            return {"thread": thread.name, **place}
    name = Path(f"/proc/self/task/{native_id}/comm")
    return {"thread": name.read_text().strip() if name.exists() else str(native_id)}
