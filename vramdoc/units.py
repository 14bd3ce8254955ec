"""Bytes to and from "1.50 GiB": the only place where sizes become text or are read from it.

It does not know what a size means. Text inside PyTorch's own messages is read by ``crashlog``, which
keeps the span of each number.
"""

from __future__ import annotations

import re

KIB, MIB, GIB, TIB = 1 << 10, 1 << 20, 1 << 30, 1 << 40

_FACTORS = {
    "": 1, "b": 1, "bytes": 1, "byte": 1,
    "k": KIB, "kb": KIB, "kib": KIB,
    "m": MIB, "mb": MIB, "mib": MIB,
    "g": GIB, "gb": GIB, "gib": GIB,
    "t": TIB, "tb": TIB, "tib": TIB,
}  # fmt: skip
_SIZE = re.compile(r"\s*([0-9]+(?:\.[0-9]+)?)\s*([A-Za-z]*)\s*\Z")


def format_bytes(size: int) -> str:
    """Render ``size`` bytes as people read it: ``0 B``, ``512 B``, ``20.00 MiB``, ``1.50 GiB``, ``-3.00 KiB``.

    Unlike PyTorch's ``format_size`` the step to the next unit is at exactly 1024, and TiB exists.
    """
    sign, size = ("-", -size) if size < 0 else ("", size)
    for unit, factor in (("TiB", TIB), ("GiB", GIB), ("MiB", MIB), ("KiB", KIB)):
        if size >= factor:
            return f"{sign}{size / factor:.2f} {unit}"
    return f"{sign}{size} B"


def parse_bytes(text: str) -> int:
    """Read ``"24GiB"``, ``"24 g"``, ``"512"`` (bytes); units are binary whatever their spelling.

    Raises:
        ValueError: the text is not a size.
    """
    match = _SIZE.match(text)
    if match is None or match[2].lower() not in _FACTORS:
        raise ValueError(f"{text!r} is not a size; write for example 24GiB, 512MiB or 1048576")
    return round(float(match[1]) * _FACTORS[match[2].lower()])


def parse_count(text: str) -> int:
    """Read a token count: ``"8k"`` is 8192, ``"2K"`` 2048, ``"1m"`` 1048576, ``"1000"`` 1000.

    Raises:
        ValueError: the text is not a whole positive number.
    """
    match = re.fullmatch(r"\s*([0-9]+)\s*([kKmM]?)\s*", text)
    if match is None or int(match[1]) == 0:
        raise ValueError(f"{text!r} is not a count; write for example 2048, 8k or 128k")
    return int(match[1]) * {"": 1, "k": KIB, "m": MIB}[match[2].lower()]
