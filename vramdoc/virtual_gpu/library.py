"""The driver library for one torch build: its C sources, and a refusal for each entry point that they do not define.

It appears in the cache under every name that it is looked up by: ``dlopen`` asks for ``libcuda.so.1`` and ``libnvidia-ml.so.1``, and
older Triton links with ``libcuda.so``. This module does not know how a child process is put on the library; see ``environment``.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path

from vramdoc.errors import DeviceUnavailable
from vramdoc.native import Library
from vramdoc.native import build as build_native
from vramdoc.virtual_gpu.torch_build import TorchBuild

SOURCES = Path(__file__).parent / "driver"
_SYMBOLS = Path(__file__).with_name("symbols.py")


def build_library(
    build: TorchBuild, *, cache: Path | None = None, environment: Mapping[str, str] = os.environ
) -> Path:
    """The driver library for ``build``; compiled at the first call, found again afterwards.

    Args:
        build: the torch it is for.
        cache: where libraries are kept; the user's cache folder by default.
        environment: where ``CC`` and ``PATH`` are looked up.

    Raises:
        MissingDependency: there is no C compiler, or it cannot compile.
        DeviceUnavailable: this torch carries its own CUDA runtime, which cannot be replaced.
        StorageProblem: the cache cannot be written.
    """
    library = Library(
        title="the virtual GPU",
        name="virtual-gpu",
        file="libvramdoc_gpu.so",
        sources=tuple(sorted(SOURCES.glob("*.c"))),
        headers=(*sorted(SOURCES.glob("*.h")), _SYMBOLS),
        flags=(
            "-O1",
            "-fno-builtin",
            "-w",
            f"-DCUDART_VERSION={build.cuda_version}",
            f"-I{SOURCES}",
        ),
        libraries=("-ldl", "-lpthread"),
        links=("libcuda.so", "libcuda.so.1", "libnvidia-ml.so.1"),
        generate=lambda: _refusals(build),
        made_from=_fingerprint(build),
    )
    return build_native(library, cache=cache, environment=environment)


def _fingerprint(build: TorchBuild) -> str:
    stamps = [
        (path.name, path.stat().st_size, path.stat().st_mtime_ns)
        for path in sorted((build.directory / "lib").glob("*.so"))
    ]
    return repr((build.version, build.cuda, str(build.directory), stamps))


def _refusals(build: TorchBuild) -> str:
    """C source in which every entry point refuses. They are weak: where the driver defines one, that one is linked."""
    from vramdoc.virtual_gpu.symbols import reachable_entry_points  # noqa: PLC0415 - needed to compile only

    entry_points = reachable_entry_points(build)
    if "cudaMalloc" not in entry_points:
        raise DeviceUnavailable(
            f"torch {build.version} carries its own CUDA runtime, which cannot be replaced",
            "use the official wheel, or a real GPU with --gpu cuda:0",
        )
    lines = ['#include "device.h"', "#pragma GCC visibility push(default)"]
    for name, code in entry_points.items():
        lines.append(f"__attribute__((weak)) REFUSE({name}, NULL, {code})")
    return "\n".join([*lines, ""])
