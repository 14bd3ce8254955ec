"""Preload a small library into a recorded program: it sees cuBLAS handles being created, and the status that a process ends with.

Without a C compiler, or off Linux, there is none, and the recording says so: the program itself never depends on it.
"""

from __future__ import annotations

import os
import re
import sys
from collections.abc import Mapping
from pathlib import Path

from vramdoc.errors import VramdocError
from vramdoc.native import Library, build, cache_folder

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
    library = build_preload(cache, environment)
    if library is None:
        return dict(environment)
    others = environment.get("LD_PRELOAD", "")
    return {**environment, "LD_PRELOAD": f"{library}:{others}" if others else str(library)}


def build_preload(
    cache: Path | None = None, environment: Mapping[str, str] = os.environ
) -> Path | None:
    """The compiled library; None off Linux, without a compiler, or where the cache cannot be written."""
    if sys.platform != "linux":
        return None
    try:
        home = cache or cache_folder()
        # LD_PRELOAD splits at spaces and colons.
        if re.search("[ :]", str(home)):
            return None
        return build(WATCH, cache=home, environment=environment)
    except VramdocError:
        return None
