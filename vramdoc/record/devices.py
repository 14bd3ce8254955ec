"""Real GPUs through NVML. A machine without NVML has none that can be seen, which is a note and no error.

It knows nothing about virtual devices (``virtual_gpu.catalogue``) and imports no torch.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True, slots=True, kw_only=True)
class GpuProcess:
    """A process that holds memory on a device, as NVML lists it. No name and no command line: those are private."""

    pid: int
    used_bytes: int | None
    """None where NVML cannot tell (Windows under WDDM, WSL)."""


@dataclass(frozen=True, slots=True, kw_only=True)
class RealGpu:
    """One physical device. Sizes in bytes, as NVML reports them at this moment."""

    index: int
    uuid: str
    """Without the ``GPU-`` in front; as ``torch.cuda.get_device_properties().uuid`` has it."""
    name: str
    total_bytes: int
    free_bytes: int
    used_bytes: int
    compute_capability: str
    driver: str
    processes: tuple[GpuProcess, ...] = ()


def real_gpus() -> tuple[list[RealGpu], str]:
    """List the devices of this machine, and say in one sentence why there are none (empty when there are).

    Source: NVML's ``nvmlDeviceGetMemoryInfo``, ``nvmlDeviceGetCudaComputeCapability`` and
    ``nvmlDeviceGetComputeRunningProcesses`` through nvidia-ml-py.
    """
    try:
        import pynvml
    except ImportError:
        return [], "NVML cannot be read: the Python package nvidia-ml-py is not installed."
    try:
        pynvml.nvmlInit()
    except pynvml.NVMLError as error:
        return [], f"NVML sees no NVIDIA driver here ({error})."
    try:
        driver = _text(pynvml.nvmlSystemGetDriverVersion())
        count = pynvml.nvmlDeviceGetCount()
        gpus = [_read_gpu(pynvml, index, driver) for index in range(count)]
    except pynvml.NVMLError as error:
        return [], f"NVML answered with an error ({error})."
    finally:
        pynvml.nvmlShutdown()
    return gpus, "" if gpus else "NVML lists no NVIDIA GPU."


def _read_gpu(pynvml: Any, index: int, driver: str) -> RealGpu:
    handle = pynvml.nvmlDeviceGetHandleByIndex(index)
    memory = pynvml.nvmlDeviceGetMemoryInfo(handle)
    major, minor = pynvml.nvmlDeviceGetCudaComputeCapability(handle)
    return RealGpu(
        index=index,
        uuid=_text(pynvml.nvmlDeviceGetUUID(handle)).removeprefix("GPU-"),
        name=_text(pynvml.nvmlDeviceGetName(handle)),
        total_bytes=memory.total,
        free_bytes=memory.free,
        used_bytes=memory.used,
        compute_capability=f"{major}.{minor}",
        driver=driver,
        processes=_read_processes(pynvml, handle),
    )


def _read_processes(pynvml: Any, handle: Any) -> tuple[GpuProcess, ...]:
    try:
        listed = pynvml.nvmlDeviceGetComputeRunningProcesses(handle)
    except pynvml.NVMLError:  # not on every platform; the totals above still hold
        return ()
    return tuple(
        GpuProcess(pid=process.pid, used_bytes=_known(process.usedGpuMemory))
        for process in sorted(listed, key=lambda process: process.pid)
    )


def _known(used: int | None) -> int | None:
    """NVML_VALUE_NOT_AVAILABLE is all ones; nvidia-ml-py turns it into None in newer versions only."""
    return None if used is None or used >= (1 << 64) - 1 else used


def _text(value: str | bytes) -> str:
    """Releases of nvidia-ml-py before 12 return bytes."""
    return value.decode("utf-8", "replace") if isinstance(value, bytes) else value
