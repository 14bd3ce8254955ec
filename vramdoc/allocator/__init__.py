"""PyTorch's caching allocator, exact to the byte, release by release. Pure: no files, no clock, no torch.

The names below are loaded when first used: whoever needs the table of options alone does not pay for the simulator.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from vramdoc.allocator.caching import CachingAllocator
    from vramdoc.allocator.config import AllocatorConfig, ConfigError
    from vramdoc.allocator.device import Device
    from vramdoc.allocator.errors import OomFigures, OutOfMemory

__all__ = [
    "AllocatorConfig",
    "CachingAllocator",
    "ConfigError",
    "Device",
    "OomFigures",
    "OutOfMemory",
]

_HOMES = {
    "AllocatorConfig": "config",
    "CachingAllocator": "caching",
    "ConfigError": "config",
    "Device": "device",
    "OomFigures": "errors",
    "OutOfMemory": "errors",
}


def __getattr__(name: str) -> Any:
    if name not in _HOMES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(importlib.import_module(f"{__name__}.{_HOMES[name]}"), name)
