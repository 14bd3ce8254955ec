"""Compile a C library of ours at its first use on a machine, into the user's cache, and find it there afterwards.

    <cache>/vramdoc/<name>/<key>/<file>     the key covers sources, headers, flags, machine, C library and the compiler asked for
                                 <links>    other names for the same file

A library appears whole or not at all: it is moved into place last. Processes may come here at once; each compiles in a folder of
its own, and what they move into place is the same. This module does not know what any library does.
"""

from __future__ import annotations

import ctypes
import functools
import hashlib
import os
import platform
import shutil
import subprocess
import tempfile
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path

from platformdirs import user_cache_path

from vramdoc.errors import MissingDependency, StorageProblem, VramdocError

_FLAGS = ("-std=c11", "-fPIC", "-shared", "-fvisibility=hidden")
_COMPILERS = ("cc", "gcc", "clang")
# The largest of ours compiles in 2 s; a compiler that waits for a licence or a dead network folder must not hold a diagnosis.
_LONGEST_COMPILATION_S = 120


@dataclass(frozen=True, slots=True, kw_only=True)
class Library:
    """What is compiled, and what it is called."""

    title: str
    """In words, for the message when it cannot be had."""
    name: str
    """Its folder in the cache."""
    file: str
    sources: tuple[Path, ...]
    headers: tuple[Path, ...] = ()
    """Read by the sources: a change in them compiles it again."""
    flags: tuple[str, ...] = ()
    """Beside those that every library of ours needs."""
    libraries: tuple[str, ...] = ()
    """System libraries to link with, as the linker takes them (``-ldl``)."""
    links: tuple[str, ...] = ()
    """Other names for it in the same folder."""
    generate: Callable[[], str] | None = None
    """One more C source, made when the library must be compiled; ``made_from`` tells what it is made from."""
    made_from: str = ""


def build(
    library: Library, *, cache: Path | None = None, environment: Mapping[str, str] = os.environ
) -> Path:
    """The compiled library; compiled at the first call on a machine, found again afterwards without a compiler.

    Args:
        library: what to compile.
        cache: where libraries are kept; the user's cache folder by default.
        environment: where ``CC`` and ``PATH`` are looked up.

    Raises:
        MissingDependency: there is no C compiler, or it cannot compile.
        StorageProblem: the cache cannot be written.
        VramdocError: what ``library.generate`` raises.
    """
    home = (cache or cache_folder()) / library.name
    final = home / _key(library, environment) / library.file
    if final.is_file():
        return final
    compiler = _compiler(library, environment)
    source = library.generate() if library.generate else None
    try:
        home.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryDirectory(prefix=".building-", dir=home) as folder:
            built = _compile(library, compiler, source, Path(folder))
            final.parent.mkdir(exist_ok=True)
            for path in (*_linked(library, Path(folder)), built):
                path.replace(final.with_name(path.name))
    except OSError as error:
        raise StorageProblem(f"cannot write the cache {home}: {error.strerror}") from error
    return final


def cache_folder() -> Path:
    """Where what can be made again is kept, of this user.

    Raises:
        StorageProblem: the user has no home, as in a container that runs under a number; ``~`` would become a folder here.
    """
    folder = user_cache_path("vramdoc")
    if not folder.is_absolute():
        raise StorageProblem("this user has no home folder for a cache", "set XDG_CACHE_HOME")
    return folder


@functools.cache
def load(library: Library) -> ctypes.CDLL | None:
    """The library in this process; None on Windows and wherever it cannot be compiled, kept or loaded.

    For what has a twin in Python: the twin is then slower, and nothing else.
    """
    if os.name == "nt":
        return None
    try:
        return ctypes.CDLL(str(build(library)))
    except (VramdocError, OSError):
        return None


def _key(library: Library, environment: Mapping[str, str]) -> str:
    # A home folder may be shared by machines; what one compiled must load on the other.
    machine = (platform.machine(), platform.libc_ver())
    settings = (_FLAGS, library.flags, library.libraries, library.links, library.made_from)
    digest = hashlib.sha256(repr((settings, machine, environment.get("CC"))).encode())
    for file in (*library.sources, *library.headers):
        content = file.read_bytes()
        digest.update(f"{file.name}\0{len(content)}\0".encode() + content)
    return digest.hexdigest()[:16]


def _compiler(library: Library, environment: Mapping[str, str]) -> str:
    wanted = environment.get("CC")
    candidates = (wanted,) if wanted else _COMPILERS
    for name in candidates:
        found = shutil.which(name, path=environment.get("PATH"))
        if found:
            return found
    raise MissingDependency(
        f"{library.title} is compiled on first use, and there is no C compiler ({', '.join(candidates)}) on PATH",
        "install one, for example: apt-get install gcc libc6-dev",
    )


def _compile(library: Library, compiler: str, source: str | None, folder: Path) -> Path:
    built = folder / library.file
    sources = [*library.sources]
    if source is not None:
        sources.append(folder / "generated.c")
        sources[-1].write_text(source, encoding="ascii")
    command = [compiler, *_FLAGS, *library.flags, *map(str, sources), "-o", str(built)]
    try:
        done = subprocess.run(
            [*command, *library.libraries],
            capture_output=True,
            text=True,
            errors="replace",
            check=False,
            timeout=_LONGEST_COMPILATION_S,
        )
    except subprocess.TimeoutExpired as expired:
        raise MissingDependency(
            f"{compiler} did not compile {library.title} within {_LONGEST_COMPILATION_S} s",
            "set CC to another compiler",
        ) from expired
    if done.returncode:
        lines = done.stderr.splitlines() or ["no message"]
        errors = (line for line in lines if "error" in line.lower())
        raise MissingDependency(
            f"{compiler} cannot compile {library.title}: {next(errors, lines[0])}",
            "it needs the C library's headers, for example: apt-get install gcc libc6-dev",
        )
    return built


def _linked(library: Library, folder: Path) -> list[Path]:
    links = [folder / name for name in library.links]
    for link in links:
        link.symlink_to(library.file)
    return links
