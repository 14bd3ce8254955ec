"""Whether a resize error comes from a DataLoader's batch of unequal samples. Two rules ask, with opposite answers."""

from __future__ import annotations

from vramdoc.crashlog.incident import CrashLog


def is_ragged(log: CrashLog) -> bool:
    """A worker or its collate function is at work: default_collate preallocates shared memory, which cannot grow."""
    return log.first("resize") is not None and bool(
        {"dataloader-worker", "collate"} & log.signs.keys()
    )
