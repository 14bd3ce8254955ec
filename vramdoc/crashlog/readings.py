"""From matched text to a Reading: sizes become bytes, digits whole numbers, anything else stays text. The span is kept."""

from __future__ import annotations

import re

from vramdoc.crashlog.incident import Reading
from vramdoc.crashlog.sizes import read_size

_UNITS = {"_bytes": "bytes", "_mib": "MiB", "_gib": "GiB"}
"""A group whose unit is not printed beside the number says it in its name."""


def reading(name: str, text: str, start: int) -> Reading:
    """Read ``text``, which stands at ``start``."""
    value: int | str = text
    tolerance = 0
    suffix = next((suffix for suffix in _UNITS if name.endswith(suffix)), "")
    if size := read_size(f"{text} {_UNITS[suffix]}" if suffix else text):
        value, tolerance = size
    elif text.isdecimal() and text.isascii():
        value = int(text)
    elif len(text) == 1 and text < " ":
        value = ord(text)  # torch 2.3 prints the device index as a raw byte (allocator-spec 9.1)
    elif text.startswith("\\u00"):
        value = bytes.fromhex(text[4:])[0]  # the same byte inside a JSON string
    return Reading(
        name=name.removesuffix(suffix),
        value=value,
        start=start,
        end=start + len(text),
        text=text,
        tolerance=tolerance,
    )


def readings_of(match: re.Match[str]) -> dict[str, Reading]:
    """Every named group that took part in the match."""
    found = [
        reading(name, match[name], match.start(name)) for name in match.re.groupindex if match[name]
    ]
    return {value.name: value for value in found}
