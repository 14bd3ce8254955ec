"""The environment of a recorded program: what is set for it, and which variables a manifest may show.

It starts nothing and reads no file.
"""

from __future__ import annotations

import platform
from collections.abc import Mapping

ALLOC_CONF = "PYTORCH_CUDA_ALLOC_CONF"
"""The one spelling that every release reads. PYTORCH_ALLOC_CONF is ignored up to 2.9, and from 2.10 on by a
build that finds this one set (c10/cuda/CUDAAllocatorConfig.h)."""

ALLOC_CONF_NAMES = (ALLOC_CONF, "PYTORCH_HIP_ALLOC_CONF", "PYTORCH_ALLOC_CONF")
"""In the order in which torch 2.10 and later look for them."""

SHOWN = frozenset(
    {
        *ALLOC_CONF_NAMES,
        "CUBLASLT_WORKSPACE_SIZE",
        "CUBLAS_WORKSPACE_CONFIG",
        "CUDA_DEVICE_MAX_CONNECTIONS",
        "CUDA_DEVICE_ORDER",
        "CUDA_LAUNCH_BLOCKING",
        "CUDA_MODULE_LOADING",
        "CUDA_VISIBLE_DEVICES",
        "LOCAL_RANK",
        "NCCL_BUFFSIZE",
        "NCCL_CUMEM_ENABLE",
        "NCCL_MAX_NCHANNELS",
        "NVIDIA_TF32_OVERRIDE",
        "UR_L0_ENABLE_RELAXED_ALLOCATION_LIMITS",
        "PYTORCH_NO_CUDA_MEMORY_CACHING",
        "RANK",
        "TORCH_CUBLASLT_UNIFIED_WORKSPACE",
        "TORCH_CUBLAS_WORKSPACE_CACHE",
        "WORLD_SIZE",
    }
)
"""The allow-list: settings of the allocator, CUDA, cuBLAS and NCCL's buffers. Nothing else leaves the machine."""


def shown_environment(environment: Mapping[str, str]) -> dict[str, str]:
    """The allow-listed variables that are set, sorted."""
    return {name: environment[name] for name in sorted(SHOWN & environment.keys())}


def shown_platform() -> dict[str, str]:
    """System, machine and release; never a host or user name."""
    return {
        "system": platform.system(),
        "machine": platform.machine(),
        "release": platform.release(),
    }


def alloc_conf_of(environment: Mapping[str, str]) -> str:
    """The config string that torch will read, empty for the default."""
    return next((environment[name] for name in ALLOC_CONF_NAMES if name in environment), "")


def with_alloc_conf(environment: Mapping[str, str], alloc_conf: str) -> dict[str, str]:
    """The same environment with exactly this config: torch does not merge its variables, so one is left."""
    kept = {name: value for name, value in environment.items() if name not in ALLOC_CONF_NAMES}
    return {**kept, ALLOC_CONF: alloc_conf} if alloc_conf else kept
