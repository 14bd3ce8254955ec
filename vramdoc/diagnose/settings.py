"""The allocator's option names as the rules need them: since when each exists, and which one a misspelled name meant."""

from __future__ import annotations

from difflib import get_close_matches

SINCE: dict[str, str] = {
    "backend": "1.13",
    "max_split_size_mb": "",
    "roundup_power2_divisions": "1.12",
    "roundup_bypass_threshold_mb": "1.13",
    "garbage_collection_threshold": "1.12",
    "expandable_segments": "2.1",
    "release_lock_on_cudamalloc": "2.2",
    "release_lock_on_hipmalloc": "2.2",
    "pinned_use_cuda_host_register": "2.2",
    "pinned_use_hip_host_register": "2.2",
    "pinned_num_register_threads": "2.2",
    "max_non_split_rounding_mb": "2.6",
    "pinned_use_background_threads": "2.6",
    "graph_capture_record_stream_reuse": "2.9",
    "per_process_memory_fraction": "2.10",
    "pinned_reserve_segment_size_mb": "2.10",
    "large_segment_size_mb": "2.11",
    "throw_on_cudamalloc_oom": "2.12",
    "pinned_free_catch_all": "2.12",
    "pinned_max_round_threshold_mb": "2.13",
    "pinned_max_cached_size_mb": "2.13",
    "expandable_segments_reserve": "2.15",
    "expandable_segments_reserve_by_class": "2.15",
}
"""First release that accepts each key (allocator-spec 6.3); empty where it is older than every release looked at."""


def nearest_key(name: str) -> str | None:
    """The known option that ``name`` most likely meant."""
    return next(iter(get_close_matches(name, SINCE, n=1, cutoff=0.6)), None)


def entries(setting: str) -> dict[str, str]:
    """A settings string as keys and values; nested lists stay text. Loose on purpose: torch's own parser is in ``allocator``."""
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
