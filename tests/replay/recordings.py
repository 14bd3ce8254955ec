"""Recordings made by the simulator: random programs, and snapshots of them as torch would have written them."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from hypothesis import strategies as st

from vramdoc.allocator import AllocatorConfig, CachingAllocator, Device, OutOfMemory
from vramdoc.snapshot.model import Snapshot
from vramdoc.snapshot.schema import snapshot_from_plain

MIB = 1 << 20
RELEASES = ("2.4", "2.6", "2.9", "2.11", "2.12", "2.13", "2.14", "2.15")
CONFIGS = (
    "",
    "max_split_size_mb:64",
    "roundup_power2_divisions:4",
    "expandable_segments:True",
    "expandable_segments:True,roundup_power2_divisions:8",
    "garbage_collection_threshold:0.5",
)
SIZES = st.one_of(
    st.integers(1, 4096),
    st.integers(1, MIB),
    st.sampled_from((512, MIB, MIB + 1, 10 * MIB - 1, 10 * MIB, 20 * MIB)),
    st.integers(MIB, 24 * MIB),
    st.integers(10 * MIB, 120 * MIB),
)
STEPS = st.lists(
    st.tuples(
        st.sampled_from(["malloc"] * 8 + ["free"] * 7 + ["hold", "empty_cache"]),
        SIZES,
        st.integers(0, 1 << 16),
    ),
    min_size=4,
    max_size=80,
)


@dataclass
class Recorder:
    """Runs steps in the simulator; every step leaves its events in the trace."""

    config: str
    release: str
    capacity: int = 1 << 30
    streams: int = 2
    allocator: CachingAllocator = field(init=False)
    live: list[int] = field(default_factory=list)
    held: list[Any] = field(default_factory=list)

    def __post_init__(self) -> None:
        config = AllocatorConfig.parse(self.config, release=self.release)
        self.allocator = CachingAllocator(config, Device(self.capacity))

    def run(self, steps: list[tuple[str, int, int]]) -> Recorder:
        for word, size, choice in steps:
            if self.held and choice % 3 == 0:
                self.allocator.complete(self.held.pop(0))
            if word == "malloc" or (word != "empty_cache" and not self.live):
                self.malloc(size, choice % self.streams * 0x100)
            elif word == "empty_cache":
                self.allocator.empty_cache()
                self.held.clear()
            else:
                address = self.live.pop(choice % len(self.live))
                if word == "free":
                    self.allocator.free(address)
                else:
                    self.held.append(self.allocator.hold(address))
        return self

    def malloc(self, size: int, stream: int) -> None:
        try:
            self.live.append(self.allocator.malloc(size, stream))
        except OutOfMemory:
            self.held.clear()

    def snapshot(self, *, since: int = 0) -> Snapshot:
        """What torch would have dumped, had recording begun ``since`` events after the start."""
        return snapshot_of(self.allocator, self.config, since)


def snapshot_of(allocator: CachingAllocator, config: str = "", since: int = 0) -> Snapshot:
    events = allocator.trace()[since:]
    times = [{**event, "time_us": 1000 + index} for index, event in enumerate(events)]
    return snapshot_from_plain(
        {
            "segments": allocator.segments(),
            "device_traces": [times],
            "allocator_settings": {"PYTORCH_CUDA_ALLOC_CONF": config},
        }
    )
