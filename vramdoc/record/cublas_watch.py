"""Preload the small library that sees cuBLAS handles being created into a recorded program.

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

WATCH = Library(
    title="the cuBLAS watch",
    name="cublas-watch",
    file="libvramdoc_cublas_watch.so",
    sources=(Path(__file__).parent / "inside" / "cublas_watch.c",),
    flags=("-O1", "-w"),
    libraries=("-ldl",),
)


def with_cublas_watch(
    environment: Mapping[str, str], *, cache: Path | None = None
) -> dict[str, str]:
    """``environment`` with the library in front of whatever is preloaded already; unchanged where it cannot be had."""
    library = build_watch(cache or user_cache_path("vramdoc"), environment)
    if library is None:
        return dict(environment)
    others = environment.get("LD_PRELOAD", "")
    return {**environment, "LD_PRELOAD": f"{library}:{others}" if others else str(library)}


def build_watch(cache: Path, environment: Mapping[str, str] = os.environ) -> Path | None:
    """The compiled library; None off Linux, without a compiler, or where the cache cannot be written."""
    # LD_PRELOAD splits at spaces and colons.
    if sys.platform != "linux" or any(character in str(cache) for character in " :"):
        return None
    try:
        return build(WATCH, cache=cache, environment=environment)
    except VramdocError:
        return None
