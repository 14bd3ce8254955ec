"""Compile the scanner once into the user's cache, and load it. Without a C compiler there is none, and the reference reads.

It does not know what the scanner does (``scan``).
"""

from __future__ import annotations

import ctypes
import functools
import hashlib
import os
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Mapping, Sequence
from pathlib import Path

from platformdirs import user_cache_path

SOURCE = Path(__file__).with_name("scanner.c")
_FLAGS = ("-std=c11", "-O2", "-fPIC", "-shared", "-fvisibility=hidden")
_COMPILERS = ("cc", "gcc", "clang")
_LONGEST_COMPILATION_S = 60


@functools.cache
def scanner_library() -> ctypes.CDLL | None:
    """The scanner, compiled at the first call on a machine; None where that is not possible."""
    path = build_scanner()
    try:
        return None if path is None else ctypes.CDLL(str(path))
    except OSError:
        return None


def build_scanner(
    *, cache: Path | None = None, environment: Mapping[str, str] = os.environ
) -> Path | None:
    """Path of the compiled scanner; see ``compile_once``."""
    headers = sorted(SOURCE.parent.glob("*.h"))
    return compile_once(
        SOURCE, name="scanner", headers=headers, cache=cache, environment=environment
    )


def compile_once(
    source: Path,
    *,
    name: str,
    headers: Sequence[Path] = (),
    cache: Path | None = None,
    environment: Mapping[str, str] = os.environ,
) -> Path | None:
    """Path of the shared library made of one C file; compiled at the first call on a machine, found again afterwards.

    Args:
        source: the C file.
        name: folder and file name in the cache.
        headers: what it includes beside it; a change in them compiles it again.
        cache: where it is kept; the user's cache folder by default.
        environment: where ``CC`` and ``PATH`` are looked up.

    Returns:
        None on Windows, without a compiler, or where the cache cannot be written: the reference is then slower, and nothing else.
    """
    if sys.platform == "win32":
        return None
    key = hashlib.sha256(repr((_FLAGS, os.uname().machine)).encode())
    for file in (source, *headers):
        key.update(file.read_bytes())
    home = (cache or user_cache_path("vramdoc")) / name
    final = home / f"{name}-{key.hexdigest()[:16]}.so"
    if final.is_file():
        return final
    compiler = _find_compiler(environment)
    if compiler is None:
        return None
    try:
        home.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryDirectory(prefix=".building-", dir=home) as folder:
            built = Path(folder) / final.name
            subprocess.run(
                [compiler, *_FLAGS, "-o", str(built), str(source)],
                capture_output=True,
                check=True,
                timeout=_LONGEST_COMPILATION_S,
            )
            # Two processes may be here at once: what they move into place is the same.
            built.replace(final)
    except (OSError, subprocess.SubprocessError):
        return None
    return final


def _find_compiler(environment: Mapping[str, str]) -> str | None:
    wanted = environment.get("CC")
    candidates = (wanted,) if wanted else _COMPILERS
    found = (shutil.which(name, path=environment.get("PATH")) for name in candidates)
    return next((path for path in found if path), None)
