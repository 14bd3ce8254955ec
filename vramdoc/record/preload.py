"""Preload a small library into a recorded program: it sees cuBLAS handles being created, and the status that a process ends with.

Without a C compiler, or off Linux, there is none, and the recording says so: the program itself never depends on it.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Mapping
from pathlib import Path

from platformdirs import user_cache_path

from vramdoc.errors import VramdocError
from vramdoc.native import Library, build

_INSIDE = Path(__file__).parent / "inside"
WATCH = Library(
    title="the recorder's library",
    name="recorder",
    file="libvramdoc_recorder.so",
    sources=(_INSIDE / "cublas_watch.c", _INSIDE / "exit_status.c"),
    flags=("-O1", "-w"),
    libraries=("-ldl",),
)


def with_preload(environment: Mapping[str, str], *, cache: Path | None = None) -> dict[str, str]:
    """``environment`` with the library in front of whatever is preloaded already; unchanged where it cannot be had."""
    library = build_preload(cache or user_cache_path("vramdoc"), environment)
    if library is None:
        return dict(environment)
    others = environment.get("LD_PRELOAD", "")
    return {**environment, "LD_PRELOAD": f"{library}:{others}" if others else str(library)}


def build_preload(cache: Path, environment: Mapping[str, str] = os.environ) -> Path | None:
    """The compiled library; None off Linux, without a compiler, or where the cache cannot be written."""
    # LD_PRELOAD splits at spaces and colons.
    if sys.platform != "linux" or any(character in str(cache) for character in " :"):
        return None
    try:
        return build(WATCH, cache=cache, environment=environment)
    except VramdocError:
        return None
