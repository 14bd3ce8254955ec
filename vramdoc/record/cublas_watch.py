"""Build the small library that sees cuBLAS handles being created, and preload it into a recorded program.

It is compiled on first use into the user's cache. Without a C compiler, or off Linux, there is none, and the recording says so:
the program itself never depends on it.
"""

from __future__ import annotations

import contextlib
import hashlib
import os
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Mapping
from pathlib import Path

from platformdirs import user_cache_path

SOURCE = Path(__file__).parent / "inside" / "cublas_watch.c"
LIBRARY = "libvramdoc_cublas_watch.so"
_FLAGS = ("-std=c11", "-O1", "-fPIC", "-shared", "-fvisibility=hidden", "-w")


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
    if sys.platform != "linux":
        return None
    digest = hashlib.sha256(SOURCE.read_bytes() + repr(_FLAGS).encode()).hexdigest()[:16]
    final = cache / "cublas-watch" / digest / LIBRARY
    # LD_PRELOAD splits at spaces and colons.
    if any(character in str(final) for character in " :"):
        return None
    if final.is_file():
        return final
    compiler = shutil.which(environment.get("CC") or "cc", path=environment.get("PATH"))
    if compiler is None:
        return None
    with contextlib.suppress(OSError, subprocess.CalledProcessError):
        final.parent.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryDirectory(prefix=".building-", dir=final.parent) as work:
            built = Path(work) / LIBRARY
            command = [compiler, *_FLAGS, str(SOURCE), "-o", str(built), "-ldl"]
            subprocess.run(command, check=True, capture_output=True)
            built.replace(final)
        return final
    return None
