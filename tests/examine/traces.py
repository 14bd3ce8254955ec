"""Snapshots of small training loops, one a rank: the same steps, another batch on each."""

from __future__ import annotations

import pickle
from pathlib import Path

MIB = 1 << 20
BASE = 0x7F0000000000


def write_rank(path: Path, rank: int, steps: int = 40) -> Path:
    """A recorded trace of one rank, in which every step's buffer is larger than the one before and gets a segment of its own.

    Memory that was freed is kept by the allocator, so that reserved bytes grow where a config does not let segments grow.
    """
    events: list[dict[str, object]] = []
    segments: list[dict[str, object]] = []
    at = BASE
    for step in range(steps):
        size = (20 + 2 * step + 20 * rank) * MIB
        common = {"addr": at, "size": size, "stream": 0, "frames": []}
        actions = ("segment_alloc", "alloc", "free_requested", "free_completed")
        events += [{"action": action, **common} for action in actions]
        segments.append(
            {
                "device": 0, "address": at, "total_size": size, "allocated_size": 0, "active_size": 0, "requested_size": 0,
                "stream": 0, "segment_type": "large", "segment_pool_id": (0, 0), "is_expandable": False, "frames": [],
                "blocks": [{"address": at, "size": size, "requested_size": 0, "state": "inactive", "frames": []}],
            }
        )  # fmt: skip
        at += 1 << 30
    snapshot = {"segments": segments, "device_traces": [events], "allocator_settings": {}}
    path.write_bytes(pickle.dumps(snapshot))
    return path
