"""From what the person wrote after ``--gpu`` to what a child process needs: its environment and the device's figures.

It starts nothing. Virtual devices are ``virtual_gpu``'s, real ones NVML's.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from vramdoc.errors import DeviceUnavailable
from vramdoc.record.devices import real_gpus
from vramdoc.virtual_gpu.catalogue import find_gpu
from vramdoc.virtual_gpu.environment import virtual_environment
from vramdoc.virtual_gpu.torch_build import find_torch, installed_version

_REAL = re.compile(r"cuda(?::(\d+))?")


@dataclass(frozen=True, slots=True, kw_only=True)
class ChosenDevice:
    """A device that a child can be put on."""

    kind: str
    """``real`` or ``virtual``."""
    key: str
    index: int
    torch_version: str
    assumed: Mapping[str, int] = field(default_factory=dict)
    """Of a virtual device: context, cuBLAS handle and foreign bytes. A real one is measured in the child."""
    overlay: Mapping[str, str] = field(default_factory=dict)
    """Variables that put a process on a virtual device."""

    @property
    def torch_release(self) -> str:
        """``"2.14"`` of ``"2.14.1+cu130"``."""
        return release_of(self.torch_version)

    def environment(self, base: Mapping[str, str]) -> dict[str, str]:
        """``base`` with the device in it."""
        return {**base, **self.overlay}

    def to_json(self) -> dict[str, Any]:
        """What the child must know."""
        return {
            "kind": self.kind,
            "key": self.key,
            "index": self.index,
            "assumed": dict(self.assumed),
        }


def release_of(version: str) -> str:
    """``"2.14"`` of ``"2.14.1+cu130"``."""
    return ".".join(version.split(".")[:2])


def choose_device(
    gpu: str, foreign_bytes: int = 0, *, devices: int = 1, python: str | None = None
) -> ChosenDevice:
    """Find the device named ``gpu``: ``cuda`` or ``cuda:N`` is a real one, anything else a virtual one.

    ``devices`` is how many of a virtual one the child sees, ``python`` the interpreter that will run (by default this one).

    Raises:
        DeviceUnavailable: there is no such real GPU, or virtual ones do not run on this platform.
        UsageError: no GPU of that name is known.
        MissingDependency: no CUDA build of torch, or no C compiler for a virtual GPU.
    """
    real = _REAL.fullmatch(gpu)
    if real is not None:
        index = int(real[1] or 0)
        _require_real(index)
        return ChosenDevice(
            kind="real", key=gpu, index=index, torch_version=installed_version(python)
        )
    virtual = find_gpu(gpu)
    build = find_torch(python)
    return ChosenDevice(
        kind="virtual",
        key=gpu,
        index=0,
        torch_version=build.version,
        assumed={
            "context_bytes": virtual.context_bytes,
            "cublas_handle_bytes": virtual.cublas_handle_bytes,
            "foreign_bytes": foreign_bytes,
        },
        overlay=virtual_environment(virtual, build, devices=devices, foreign_bytes=foreign_bytes),
    )


def _require_real(index: int) -> None:
    """Refuse a device that NVML says is not there; where NVML says nothing (ROCm), torch decides in the child."""
    gpus, note = real_gpus()
    if index >= len(gpus):
        reason = f"there are {len(gpus)} GPUs here" if gpus else note.rstrip(".")
        raise DeviceUnavailable(
            f"cuda:{index} cannot be used: {reason}",
            "run `vramdoc gpus` for what can be, or choose a virtual one, for example --gpu rtx4090",
        )
