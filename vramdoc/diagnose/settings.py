"""The allocator's settings as the rules need them: loose reading of a string, the option a misspelled name meant, release numbers.

torch's exact parser is ``allocator.config``; this one also reads what torch would refuse.
"""

from __future__ import annotations

from difflib import get_close_matches

from vramdoc.allocator.options import KEYS

FORMER = {"roundup_bypass_threshold_mb": "1.13 and 2.0"}
"""Keys that existed and are gone (allocator-spec 6.3)."""


def introduced(key: str) -> str | None:
    """The first release that is known to accept ``key``; None for a key that no release has."""
    return KEYS[key].introduced if key in KEYS else None


def nearest_key(name: str) -> str | None:
    """The known option that ``name`` most likely meant."""
    return next(iter(get_close_matches(name, KEYS, n=1, cutoff=0.6)), None)


def entries(setting: str) -> dict[str, str]:
    """A settings string as keys and values; nested lists stay text."""
    found: dict[str, str] = {}
    depth, start = 0, 0
    for position, character in enumerate(f"{setting},"):
        depth += (character == "[") - (character == "]")
        if character == "," and depth <= 0:
            key, colon, value = setting[start:position].partition(":")
            if colon:
                found[key.strip()] = value.strip()
            start = position + 1
    return found


def release_of(version: str | None) -> tuple[int, int] | None:
    """``"2.9.1+cu128"`` as (2, 9)."""
    parts = (version or "").split(".")
    if len(parts) < 2 or not (parts[0].isdecimal() and parts[1].isdecimal()):
        return None
    return int(parts[0]), int(parts[1])
