"""What a recorded process sees around it: versions and the device. Nothing that names a person or a machine."""

from __future__ import annotations

import platform
import sys
from collections.abc import Mapping
from importlib import metadata

import torch

from vramdoc.record.devices import real_gpus
from vramdoc.record.manifest import DeviceInfo
from vramdoc.virtual_gpu.inside import is_active

_LIBRARIES = {
    "accelerate": "accelerate",
    "bitsandbytes": "bitsandbytes",
    "deepspeed": "deepspeed",
    "hqq": "hqq",
    "lightning": "lightning",
    "numpy": "numpy",
    "peft": "peft",
    "safetensors": "safetensors",
    "transformers": "transformers",
    "triton": "triton",
    "vllm": "vllm",
}
"""Module name to distribution name: those whose version decides how memory is used. Only what the program imported is named."""


def versions() -> dict[str, str]:
    """Versions of Python, torch, CUDA (as torch was built), and of the libraries that the program imported."""
    found = {"python": platform.python_version(), "torch": str(torch.__version__)}
    if torch.version.cuda:
        found["cuda"] = torch.version.cuda
    if torch.version.hip:
        found["hip"] = torch.version.hip
    for module, distribution in _LIBRARIES.items():
        if module in sys.modules:
            try:
                found[module] = metadata.version(distribution)
            except metadata.PackageNotFoundError:
                found[module] = "unknown"
    return found


def kind_of_device() -> str:
    """``"virtual"`` or ``"real"``, by what this process runs on."""
    return "virtual" if is_active() else "real"


def describe_device(kind: str, key: str, index: int, assumed: Mapping[str, int]) -> DeviceInfo:
    """The device by its properties, which takes no context on it.

    ``assumed`` holds what a virtual device takes for granted (the catalogue's figures), or what was measured of a real one.
    """
    properties = torch.cuda.get_device_properties(index)
    return DeviceInfo(
        kind=kind,
        name=properties.name,
        key=key,
        index=index,
        total_bytes=properties.total_memory,
        compute_capability=f"{properties.major}.{properties.minor}",
        multiprocessors=properties.multi_processor_count,
        context_bytes=assumed.get("context_bytes"),
        cublas_handle_bytes=assumed.get("cublas_handle_bytes"),
        foreign_bytes=assumed.get("foreign_bytes"),
    )


def used_before_context() -> tuple[dict[str, int], str]:
    """Bytes in use on each real device by its UUID, read before this process makes its context; and the driver's version."""
    gpus, _ = real_gpus()
    return {gpu.uuid: gpu.used_bytes for gpu in gpus}, gpus[0].driver if gpus else ""


def foreign_bytes(index: int, used_before: Mapping[str, int]) -> dict[str, int]:
    """What others held of a real device before this process used it; empty where NVML saw nothing."""
    uuid = str(getattr(torch.cuda.get_device_properties(index), "uuid", "")).removeprefix("GPU-")
    return {"foreign_bytes": used_before[uuid]} if uuid in used_before else {}


def measure_context(index: int, used_before: Mapping[str, int]) -> dict[str, int]:
    """What others held, and what this process's context took: the difference that NVML and ``cudaMemGetInfo`` saw."""
    foreign = foreign_bytes(index, used_before)
    if not foreign:
        return {}
    free, total = torch.cuda.mem_get_info(index)
    own = total - free - torch.cuda.memory_reserved(index) - foreign["foreign_bytes"]
    return {**foreign, "context_bytes": max(own, 0)}
