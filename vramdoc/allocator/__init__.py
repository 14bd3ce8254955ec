"""PyTorch's caching allocator, exact to the byte, release by release. Pure: no files, no clock, no torch."""

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
