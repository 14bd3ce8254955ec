"""Any number of sessions under any allocator config, through the exact simulator: no run, no device.

Sessions from the third on repeat the pattern of a SessionStream. It decides nothing; ``plan`` searches with it.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from vramdoc.allocator import AllocatorConfig
from vramdoc.capacity.session_stream import SessionStream
from vramdoc.replay.engines import Job
from vramdoc.replay.native import simulator
from vramdoc.replay.start import StartState


@dataclass(frozen=True, slots=True, kw_only=True)
class Simulated:
    """How it would go."""

    sessions: int
    fits: bool
    prefilled: int
    """Sessions that had read their prompt when it ended."""
    reserved_peak: int
    active_peak: int
    short_by: int
    """By how much the request that failed exceeds what the device had left; 0 when it fits."""


def simulate(
    stream: SessionStream, sessions: int, *, config: AllocatorConfig, capacity: int, in_use: int
) -> Simulated | None:
    """Put ``sessions`` (at least three) through the allocator on a device of ``capacity`` bytes, of which others use ``in_use``.

    None where the simulator has no answer: under another backend, or where the release would corrupt its own heap.
    """
    if config.backend != "native":
        return None
    requests, prompt_ends = stream.of(sessions)
    empty = StartState(segments=(), open_sizes=0)
    outcome = simulator().run(
        Job(requests=requests, start=empty, config=config, capacity=capacity, in_use=in_use)
    )
    if outcome.undefined:
        return None
    failure = outcome.failure
    return Simulated(
        sessions=sessions,
        fits=failure is None,
        prefilled=int(np.searchsorted(prompt_ends, outcome.operations, side="right")),
        short_by=0 if failure is None else max(1, failure.tried - failure.free),
        reserved_peak=outcome.stats["reserved_bytes.all.peak"],
        active_peak=outcome.stats["active_bytes.all.peak"],
    )
