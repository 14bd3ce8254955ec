"""The environment variables that put a child process on a virtual GPU.

This module starts nothing. The process itself calls ``inside.prepare_torch`` once torch is imported.
"""

from __future__ import annotations

import os
import re
from collections.abc import Mapping
from pathlib import Path

from vramdoc.errors import UsageError
from vramdoc.units import format_bytes
from vramdoc.virtual_gpu.catalogue import GpuModel
from vramdoc.virtual_gpu.library import build_library
from vramdoc.virtual_gpu.torch_build import TorchBuild

MOST_DEVICES = 64
# Kernel images in PyTorch's own Linux wheels, by the CUDA release they are built with (.ci/manywheel/build_cuda.sh of the
# releases 2.6 to 2.14). CUB refuses to choose a kernel for an image that the wheel does not hold (CUDA error 98).
_IMAGES = (
    ((12, 8), (75, 80, 86, 90, 100, 120)),
    ((0, 0), (60, 70, 75, 80, 86, 90)),
)


def virtual_environment(
    gpu: GpuModel,
    build: TorchBuild,
    *,
    devices: int = 1,
    foreign_bytes: int = 0,
    log: Path | None = None,
    inherited: Mapping[str, str] = os.environ,
) -> dict[str, str]:
    """Variables to set in a child's environment, over ``inherited``.

    Args:
        gpu: the model that every device is.
        build: the torch that the child will import.
        devices: how many devices it sees.
        foreign_bytes: what other processes hold of each device.
        log: a file that gets one line for each driver-level memory call; see ``driver_log``.
        inherited: the environment that the child inherits; search paths are extended, not replaced.

    Raises:
        UsageError: a device count or foreign bytes that no such device could have.
        MissingDependency, DeviceUnavailable, StorageProblem: the library cannot be had; see ``build_library``.
    """
    if not 1 <= devices <= MOST_DEVICES:
        raise UsageError(f"{devices} devices cannot be had", f"ask for 1 to {MOST_DEVICES}")
    if not 0 <= foreign_bytes <= gpu.total_bytes:
        raise UsageError(
            f"other processes cannot hold {format_bytes(foreign_bytes)} of {gpu.name}",
            f"it has {format_bytes(gpu.total_bytes)}",
        )
    library = build_library(build)
    major, minor = gpu.compute_capability.split(".")
    capability = int(major) * 10 + int(minor)
    return {
        "LD_PRELOAD": _prepend(_preloadable(library), inherited.get("LD_PRELOAD")),
        "LD_LIBRARY_PATH": _prepend(str(library.parent), inherited.get("LD_LIBRARY_PATH")),
        "VRAMDOC_VGPU_NAME": gpu.name,
        "VRAMDOC_VGPU_TOTAL": str(gpu.total_bytes),
        "VRAMDOC_VGPU_CONTEXT": str(gpu.context_bytes),
        "VRAMDOC_VGPU_CUBLAS_HANDLE": str(gpu.cublas_handle_bytes),
        "VRAMDOC_VGPU_FOREIGN": str(foreign_bytes),
        "VRAMDOC_VGPU_DEVICES": str(devices),
        "VRAMDOC_VGPU_CAPABILITY": str(capability),
        "VRAMDOC_VGPU_IMAGE": str(_kernel_image(capability, build)),
        "VRAMDOC_VGPU_MULTIPROCESSORS": str(gpu.multiprocessors),
        "VRAMDOC_VGPU_LOG": str(log.resolve()) if log else "",
        # The person's own choice is about their real devices.
        "CUDA_VISIBLE_DEVICES": ",".join(str(index) for index in range(devices)),
        # Since 2.14 some plain operations prefer a Triton kernel; this takes torch's own.
        "TORCH_DISABLE_NATIVE_JIT": "1",
        # No memory is shared between processes here; torch otherwise asks cuMemCreate for a handle to export.
        "TORCH_CUDA_EXPANDABLE_SEGMENTS_IPC": "0",
    }


def _prepend(first: str, rest: str | None) -> str:
    return f"{first}:{rest}" if rest else first


def _preloadable(library: Path) -> str:
    """LD_PRELOAD splits at spaces too; a bare name is then searched for in LD_LIBRARY_PATH, which does not."""
    return library.name if re.search(r"\s", str(library)) else str(library)


def _kernel_image(capability: int, build: TorchBuild) -> int:
    """The newest kernel image in the wheel that a device of this capability loads, else the oldest one there is."""
    cuda = tuple(int(part) for part in build.cuda.split(".")[:2])
    images = next(images for since, images in _IMAGES if cuda >= since)
    return max((image for image in images if image <= capability), default=images[0])
