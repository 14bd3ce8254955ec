"""torch's own recording, switched on and written out: allocator history, the out-of-memory observer, snapshots.

Runs inside the recorded process. It knows no manifest.
"""

from __future__ import annotations

import gc
import inspect
import pickle
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any, BinaryIO

import torch

from vramdoc.record.storage import write_atomically

STACKS = ("python", "all", "none")
"""What a recorded stack holds: Python frames (cheap), C++ frames as well (slow to name), or nothing."""


def start_history(max_entries: int, stacks: str) -> None:
    """Switch on ``torch.cuda.memory._record_memory_history`` (torch 2.6 and later), with what this release offers."""
    record = torch.cuda.memory._record_memory_history  # noqa: SLF001 # torch's documented name
    options: dict[str, Any] = {
        "enabled": "all",
        "context": None if stacks == "none" else "all",
        "stacks": "all" if stacks == "all" else "python",
        "max_entries": max_entries,
        "global_record_annotations": True,  # record_function of every thread, 2.8 and later
    }
    offered = inspect.signature(record).parameters
    record(**{name: value for name, value in options.items() if name in offered})


def on_out_of_memory(react: Callable[[int, int, int, int], None]) -> None:
    """Have ``react(device, requested, device_total, device_free)`` called at each out-of-memory error, before it unwinds.

    torch calls it in the thread whose request failed, after its last retry, without holding the allocator's lock.
    """
    torch._C._cuda_attach_out_of_memory_observer(react)  # noqa: SLF001 # as torch's own memory docs do


def write_snapshot(path: Path) -> float:
    """Write ``torch.cuda.memory._snapshot()`` to ``path``, all or nothing, and return the seconds it took.

    Raises:
        StorageProblem: it cannot be written.
    """
    started = time.perf_counter()
    # A snapshot is millions of small objects and no cycle: the collector would walk them again and again.
    was_collecting = gc.isenabled()
    gc.disable()
    try:
        write_atomically(path, _pickle_snapshot)
    finally:
        if was_collecting:
            gc.enable()
    return time.perf_counter() - started


def _pickle_snapshot(stream: BinaryIO) -> None:
    pickle.dump(torch.cuda.memory._snapshot(), stream)  # noqa: SLF001 # torch's documented name
