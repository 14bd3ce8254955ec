"""Sizes: what a request is rounded to, and how much is asked from CUDA for it. Identical in torch 2.2 to 2.15.

Constants are those of c10/cuda/CUDACachingAllocator.cpp; all sizes in bytes.
"""

from __future__ import annotations

from collections.abc import Sequence

from vramdoc.units import MIB

MIN_BLOCK = 512
"""kMinBlockSize: granularity and minimum of every block."""
SMALL_SIZE = MIB
"""kSmallSize: rounded sizes up to this live in the small pool."""
SMALL_BUFFER = 2 * MIB
"""kSmallBuffer: segment, and expandable page, of the small pool."""
MIN_LARGE_ALLOC = 10 * MIB
"""kMinLargeAlloc: smaller requests of the large pool share segments of large_segment_size."""
ROUND_LARGE = 2 * MIB
"""kRoundLarge: granularity of the segments of larger requests."""


def round_size(size: int, divisions: Sequence[int]) -> int:
    """Block size for a request of ``size`` bytes (DeviceCachingAllocator::round_size).

    Args:
        size: requested bytes.
        divisions: the sixteen entries of roundup_power2_divisions, for 1 MiB, 2 MiB ... 32 GiB; smaller sizes use the
            first, larger ones the last.
    """
    if size < MIN_BLOCK:
        return MIN_BLOCK
    division = divisions[min(max(size.bit_length() - 21, 0), len(divisions) - 1)]
    if division > 1 and size > MIN_BLOCK * division:
        return _round_power2_division(size, division)
    return (size + MIN_BLOCK - 1) // MIN_BLOCK * MIN_BLOCK


def _round_power2_division(size: int, division: int) -> int:
    """Up to the next of ``division`` steps between two powers of two (roundup_power2_next_division)."""
    power_floor = 1 << (size.bit_length() - 1)
    step = power_floor // division
    return (size + step - 1) // step * step


def allocation_size(size: int, large_segment_size: int) -> int:
    """Bytes asked from CUDA for a block of ``size`` (get_allocation_size); also "Tried to allocate" of the OOM text."""
    if size <= SMALL_SIZE:
        return SMALL_BUFFER
    if size < MIN_LARGE_ALLOC:
        return large_segment_size
    return (size + ROUND_LARGE - 1) // ROUND_LARGE * ROUND_LARGE
