"""torch's own recording, switched on and written out: allocator history, the out-of-memory observer, snapshots.

Runs inside the recorded process. It knows no manifest.
"""

from __future__ import annotations

import gc
import inspect
import pickle
import sys
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from functools import cache
from pathlib import Path
from typing import Any

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


def stop_history() -> None:
    """Switch the allocator history off; what it held is gone."""
    torch.cuda.memory._record_memory_history(enabled=None)  # noqa: SLF001 # torch's documented name


def is_history_on() -> bool:
    """Whether somebody has switched the history on."""
    return bool(torch._C._cuda_isHistoryEnabled())  # noqa: SLF001 # there is no public way to ask


_Reaction = Callable[[int, int, int, int], None]
_reactions: list[_Reaction] = []


def on_out_of_memory(react: _Reaction) -> Callable[[], None]:
    """Have ``react(device, requested, device_total, device_free)`` called at each out-of-memory error, before it unwinds.

    torch calls it in the thread whose request failed, after its last retry, without holding the allocator's lock. Returns what
    ends this.
    """
    _attach_observer()
    _reactions.append(react)
    return lambda: _reactions.remove(react)


@cache
def _attach_observer() -> None:
    """Once a process: torch can attach an observer, not detach it."""

    def observe(device: int, requested: int, total: int, free: int) -> None:
        for react in tuple(_reactions):
            react(device, requested, total, free)

    torch._C._cuda_attach_out_of_memory_observer(observe)  # noqa: SLF001 # as torch's own memory docs do


def write_snapshot(path: Path) -> list[Mapping[str, Any]]:
    """Write ``torch.cuda.memory._snapshot()`` to ``path``, all or nothing, and return its annotations (torch 2.5 and later).

    Raises:
        StorageProblem: it cannot be written.
    """
    with no_collection(), _no_inductor():
        snapshot = torch.cuda.memory._snapshot()  # noqa: SLF001 # torch's documented name
        write_atomically(path, lambda stream: pickle.dump(snapshot, stream))
        return list(snapshot.get("external_annotations", ()))


_spare: list[list[None]] = [[] for _ in range(20_000)]
"""Tracked objects that nobody needs; see ``no_collection``."""


@contextmanager
def no_collection() -> Iterator[None]:
    """Keep the garbage collector still inside the block, and no nearer to its next run behind it.

    A snapshot is millions of small objects and no cycle, which the collector would walk again and again; and what it found on the
    way would be the program's garbage, gone by the recorder's doing at the very moment that is to be recorded. It runs when some
    700 objects more were made than freed, so as many spare ones are freed as the block has left behind.
    """
    was_collecting = gc.isenabled()
    gc.disable()
    before = gc.get_count()[0]
    try:
        yield
    finally:
        del _spare[: max(gc.get_count()[0] - before, 0)]
        if was_collecting:
            gc.enable()


class _NothingCompiled:
    """Stands for ``torch._inductor`` where nothing was compiled: no line of code has a stack of its own."""

    class codecache:  # noqa: N801 # torch's name
        class PyCodeCache:
            @staticmethod
            def stack_frames_for_code(_path: str, _line: int) -> None:
                return None


@contextmanager
def _no_inductor() -> Iterator[None]:
    """Keep a snapshot from importing ``torch._inductor``, which takes over a second and 900 modules.

    To name a stack's frames torch asks it for each (torch/csrc/profiler/python/combined_traceback.cpp). A program that has not
    imported it has no compiled frames.
    """
    if "torch._inductor" in sys.modules:
        yield
        return
    torch._inductor = _NothingCompiled  # noqa: SLF001 # torch.__getattr__ would import it
    try:
        yield
    finally:
        if vars(torch).get("_inductor") is _NothingCompiled:  # else imported meanwhile
            del torch._inductor  # noqa: SLF001
