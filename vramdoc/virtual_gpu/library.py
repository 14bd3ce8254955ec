"""Compile the driver library for one torch build, once, into the user's cache.

    <cache>/vramdoc/virtual-gpu/<key>/libvramdoc_gpu.so      the library; the key covers sources, flags and torch build
                                     libcuda.so.1            links to it: what dlopen finds,
                                     libnvidia-ml.so.1
                                     libcuda.so              and what older Triton links with

This module does not know how a child process is put on the library; see ``environment``.
"""

from __future__ import annotations

import errno
import hashlib
import os
import shutil
import subprocess
import tempfile
from collections.abc import Mapping
from pathlib import Path

from platformdirs import user_cache_path

from vramdoc.errors import DeviceUnavailable, MissingDependency, StorageProblem
from vramdoc.virtual_gpu.torch_build import TorchBuild

LIBRARY_NAME = "libvramdoc_gpu.so"
LINKS = ("libcuda.so", "libcuda.so.1", "libnvidia-ml.so.1")
SOURCES = Path(__file__).parent / "driver"
_FLAGS = ("-std=c11", "-O1", "-fPIC", "-shared", "-fvisibility=hidden", "-fno-builtin", "-w")
_COMPILERS = ("cc", "gcc", "clang")


def build_library(
    build: TorchBuild, *, cache: Path | None = None, environment: Mapping[str, str] = os.environ
) -> Path:
    """The driver library for ``build``; compiled at the first call, found again afterwards.

    Two processes may call this at once: each compiles in a folder of its own, and the first one to finish wins.

    Args:
        build: the torch it is for.
        cache: where libraries are kept; the user's cache folder by default.
        environment: where ``CC`` and ``PATH`` are looked up.

    Raises:
        MissingDependency: there is no C compiler, or it cannot compile.
        DeviceUnavailable: this torch carries its own CUDA runtime, which cannot be replaced.
        StorageProblem: the cache cannot be written.
    """
    home = (cache or user_cache_path("vramdoc")) / "virtual-gpu"
    final = home / _key(build)
    if (final / LIBRARY_NAME).is_file():
        return final / LIBRARY_NAME
    compiler = _find_compiler(environment)
    try:
        home.mkdir(parents=True, exist_ok=True)
        work = Path(tempfile.mkdtemp(prefix=".building-", dir=home))
    except OSError as error:
        raise StorageProblem(f"cannot write the cache {home}: {error.strerror}") from error
    try:
        _compile(compiler, build, work)
        for link in LINKS:
            (work / link).symlink_to(LIBRARY_NAME)
        _move_into_place(work, final)
    except OSError as error:
        raise StorageProblem(f"cannot write the cache {home}: {error.strerror}") from error
    finally:
        shutil.rmtree(work, ignore_errors=True)
    return final / LIBRARY_NAME


def _move_into_place(work: Path, final: Path) -> None:
    try:
        work.rename(final)
    except OSError as error:
        # Another process was faster: its library is the same.
        if error.errno not in (errno.ENOTEMPTY, errno.EEXIST):
            raise


def _key(build: TorchBuild) -> str:
    digest = hashlib.sha256()
    for source in (*sorted(SOURCES.glob("*.[ch]")), Path(__file__).with_name("symbols.py")):
        digest.update(source.name.encode() + b"\0" + source.read_bytes())
    stamps = [
        (path.name, path.stat().st_size, path.stat().st_mtime_ns)
        for path in sorted((build.directory / "lib").glob("*.so"))
    ]
    digest.update(
        repr((build.version, build.cuda, str(build.directory), stamps, _FLAGS, LINKS)).encode()
    )
    return f"{build.version}-{digest.hexdigest()[:16]}"


def _find_compiler(environment: Mapping[str, str]) -> str:
    wanted = environment.get("CC")
    for name in (wanted,) if wanted else _COMPILERS:
        found = shutil.which(name, path=environment.get("PATH"))
        if found:
            return found
    raise MissingDependency(
        f"the virtual GPU is compiled on first use, and there is no C compiler ({wanted or ', '.join(_COMPILERS)}) on PATH",
        "install one, for example: apt-get install gcc libc6-dev",
    )


def _compile(compiler: str, build: TorchBuild, work: Path) -> None:
    from vramdoc.virtual_gpu.symbols import reachable_entry_points  # noqa: PLC0415 - needed to compile only

    entry_points = reachable_entry_points(build)
    if "cudaMalloc" not in entry_points:
        raise DeviceUnavailable(
            f"torch {build.version} carries its own CUDA runtime, which cannot be replaced",
            "use the official wheel, or a real GPU with --gpu cuda:0",
        )
    refusals = work / "refusals.c"
    refusals.write_text(_refusals(entry_points), encoding="ascii")
    command = [
        compiler,
        *_FLAGS,
        f"-DCUDART_VERSION={build.cuda_version}",
        f"-I{SOURCES}",
        *(str(source) for source in sorted(SOURCES.glob("*.c"))),
        str(refusals),
        *("-o", str(work / LIBRARY_NAME), "-ldl", "-lpthread"),
    ]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode:
        errors = [line for line in done.stderr.splitlines() if "error" in line.lower()]
        raise MissingDependency(
            f"{compiler} cannot compile the virtual GPU: {(errors or done.stderr.splitlines() or ['no message'])[0]}",
            "it needs the C library's headers, for example: apt-get install gcc libc6-dev",
        )
    refusals.unlink()


def _refusals(entry_points: Mapping[str, int]) -> str:
    """C source in which every entry point refuses. They are weak: where the driver defines one, that one is linked."""
    lines = ['#include "device.h"', "#pragma GCC visibility push(default)"]
    for name, code in entry_points.items():
        lines.append(f"__attribute__((weak)) REFUSE({name}, NULL, {code})")
    return "\n".join([*lines, ""])
