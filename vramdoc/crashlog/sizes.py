"""Sizes as PyTorch prints them, and how far the printed digits can be from the truth.

``format_size`` (c10/cuda/CUDACachingAllocator.cpp) prints bytes up to 1024 as they are and larger values in KiB, MiB or GiB
with two decimals; there is no TiB. MPS prints GB and MB but divides by 1024. It does not know what a size means.
"""

from __future__ import annotations

import re

GAP = r"(?:\s|\\+[nrt])+"
"""What may stand between two words: wrapped lines, and newlines that a JSON or Rust string has escaped."""
OPTIONAL_GAP = r"(?:\s|\\+[nrt])*"
SIZE = rf"[0-9]{{1,20}}(?:\.[0-9]{{1,6}})?{OPTIONAL_GAP}(?:bytes|byte|[KMGT]i?B|B)\b"

NO_ANSWER = 1 << 64
"""2**64 - 1 bytes, printed as 17179869184.00 GiB: NVML or the memory fraction gave no figure (pytorch#111363)."""

_PARTS = re.compile(rf"([0-9]+)(?:\.([0-9]+))?{OPTIONAL_GAP}([A-Za-z]+)\Z")
_UNITS = {"b": 0, "byte": 0, "bytes": 0, "k": 10, "m": 20, "g": 30, "t": 40}


def read_size(text: str) -> tuple[int, int] | None:
    """Return (bytes, half a unit of the last printed digit), or None where ``text`` is no size.

    >>> read_size("1.16 GiB")
    (1245540516, 5368710)
    """
    match = _PARTS.match(text)
    if match is None:
        return None
    unit = match[3].lower()
    shift = _UNITS.get(unit, _UNITS.get(unit[0]))
    if shift is None:
        return None
    decimals = match[2] or ""
    scale = 10 ** len(decimals)
    value = (2 * (int(match[1] + decimals) << shift) + scale) // (2 * scale)
    # A whole number of bytes is exact; every other figure was rounded by printf.
    tolerance = 0 if shift == 0 else -((-1 << shift) // (2 * scale))
    return value, tolerance
