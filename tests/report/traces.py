"""A small, exact trace for pictures and pages: a server whose caches grow, split segments, and end out of memory."""

from __future__ import annotations

import random

import numpy as np

from vramdoc.evidence.case import Case
from vramdoc.evidence.oom import OomAnatomy
from vramdoc.facts import Fact, Source
from vramdoc.record.manifest import DeviceInfo, Exit, ExitKind, Manifest, Phase
from vramdoc.snapshot.model import (
    ACTIONS,
    BlockInfo,
    Frame,
    SegmentInfo,
    Snapshot,
    StackTable,
    Trace,
)

MIB = 1 << 20
SEGMENT = 20 * MIB
BASE = 0x7F0000000000
STARTED = 1_700_000_000_000_000
FRAMES = (
    Frame("??", 0, "at::native::empty_cuda(c10::IntArrayRef)"),
    Frame(
        "/home/ann/serve/.venv/lib/python3.11/site-packages/torch/nn/modules/linear.py",
        125,
        "forward",
    ),
    Frame("/home/ann/serve/cache.py", 41, "append"),
    Frame("/home/ann/serve/model.py", 88, "forward"),
    Frame("/home/ann/serve/train.py", 12, "main"),
)
STACKS = ((0, 2, 4), (0, 1, 3, 4), (0, 4))


class _Device:
    """First-fit blocks in 20 MiB segments: enough of an allocator to make honest traces."""

    def __init__(self) -> None:
        self.rows: list[tuple[str, int, int, int]] = []
        self.free: list[tuple[int, int]] = []
        self.live: dict[int, tuple[int, int]] = {}
        self.pending: dict[int, int] = {}
        self.segments = 0

    def malloc(self, requested: int, stack: int) -> int:
        size = -(-requested // 512) * 512
        place = next(((a, n) for a, n in sorted(self.free) if n >= size), None)
        if place is None:
            place = (BASE + self.segments * SEGMENT, SEGMENT)
            self.segments += 1
            self.rows.append(("segment_alloc", *place, stack))
            self.free.append(place)
        self.free.remove(place)
        if place[1] > size:
            self.free.append((place[0] + size, place[1] - size))
        self.rows.append(("alloc", place[0], requested, stack))
        self.live[place[0]] = (requested, stack)
        return place[0]

    def release(self, address: int, *, complete: bool = True) -> None:
        requested, stack = self.live[address]
        self.rows.append(("free_requested", address, requested, stack))
        if complete:
            self.complete(address)

    def complete(self, address: int) -> None:
        requested, stack = self.live.pop(address)
        self.rows.append(("free_completed", address, requested, stack))
        self.free.append((address, -(-requested // 512) * 512))
        self._merge()

    def _merge(self) -> None:
        merged: list[tuple[int, int]] = []
        for address, size in sorted(self.free):
            if merged and sum(merged[-1]) == address and (address - BASE) % SEGMENT:
                merged[-1] = (merged[-1][0], merged[-1][1] + size)
            else:
                merged.append((address, size))
        self.free = merged

    def fail(self, requested: int, driver_free: int) -> None:
        self.rows.append(("oom", driver_free, requested, 0))

    def snapshot(self, pending: set[int]) -> Snapshot:
        blocks = [
            (
                a,
                -(-r // 512) * 512,
                r,
                "active_pending_free" if a in pending else "active_allocated",
                s,
            )
            for a, (r, s) in self.live.items()
        ]
        blocks += [(a, n, 0, "inactive", 2) for a, n in self.free]
        stacks = [tuple(FRAMES[i] for i in stack) for stack in STACKS]
        infos = sorted(
            (
                BlockInfo(address=a, size=n, requested_size=r, state=state, frames=stacks[s])
                for a, n, r, state, s in blocks
            ),
            key=lambda b: b.address,
        )
        segments = []
        for index in range(self.segments):
            start = BASE + index * SEGMENT
            own = tuple(b for b in infos if start <= b.address < start + SEGMENT)
            active = sum(b.size for b in own if b.state != "inactive")
            segments.append(
                SegmentInfo(
                    device=0, address=start, total_size=SEGMENT, allocated_size=active, active_size=active,
                    requested_size=active, stream=0, segment_type="large", segment_pool_id=(0, 0),
                    is_expandable=False, blocks=own,
                )
            )  # fmt: skip
        return Snapshot(
            segments=tuple(segments),
            traces=(self._trace(),),
            allocator_settings={"expandable_segments": False},
        )

    def _trace(self) -> Trace:
        count = len(self.rows)
        ends = np.cumsum([0, *(len(stack) for stack in STACKS)])
        return Trace(
            device=0, actions=ACTIONS, pools=((0, 0),),
            action=np.array([ACTIONS.index(row[0]) for row in self.rows], np.uint8),
            address=np.array([row[1] for row in self.rows], np.int64),
            size=np.array([row[2] for row in self.rows], np.int64),
            stack=np.array([row[3] for row in self.rows], np.int32),
            stream=np.zeros(count, np.int64), pool=np.zeros(count, np.int16),
            time_us=STARTED + 250 * np.arange(count),
            stacks=StackTable(
                frames=FRAMES, indices=np.concatenate([np.array(s, np.int32) for s in STACKS]), ends=ends.astype(np.int64)
            ),
        )  # fmt: skip


def stepping_snapshot(steps: int = 60, seed: int = 0) -> Snapshot:
    """Caches that grow by reallocation beside short-lived activations, until a request fails."""
    chance = random.Random(seed)
    device = _Device()
    weights = [device.malloc(6 * MIB, 1) for _ in range(4)]
    caches = [device.malloc(64 << 10, 0) for _ in range(4)]
    waiting: list[int] = []
    for step in range(steps):
        scratch = [device.malloc(chance.randrange(1, 4 * MIB), 2) for _ in range(3)]
        for index, cache in enumerate(caches):
            grown = device.malloc(device.live[cache][0] + (64 << 10) + 8 * step, 0)
            device.release(cache)
            caches[index] = grown
        for address in waiting:
            device.complete(address)
        waiting = scratch[:1]
        device.release(scratch[0], complete=False)
        for address in scratch[1:]:
            device.release(address)
    device.fail(19 * MIB, 3 * MIB)
    assert weights
    return device.snapshot(set(waiting))


def stepping_case() -> Case:
    """The snapshot with a manifest: phases, a device, a failed request."""
    snapshot = stepping_snapshot()
    phases = tuple(
        Phase(name=name, started_us=STARTED + 250 * at)
        for name, at in (("load", 0), ("decode", 60))
    )
    device = DeviceInfo(
        kind="virtual", name="NVIDIA GeForce RTX 3060", key="rtx3060", total_bytes=96 * MIB,
        compute_capability="8.6", multiprocessors=28,
    )  # fmt: skip
    return Case(
        kind="recording", name="serve",
        manifest=Manifest(
            created="2026-12-01T10:15:00Z", tool_version="1", versions={"torch": "2.14.1"}, platform={"system": "Linux"},
            alloc_conf="", device=device, exit=Exit(kind=ExitKind.OUT_OF_MEMORY), phases=phases,
        ),
        oom_snapshot=snapshot,
        oom=OomAnatomy(
            requested=Fact("requested", 20 * MIB, "bytes", Source.VIRTUAL_GPU, "OOM event"),
            largest_hole=Fact("largest_hole", 6 * MIB, "bytes", Source.VIRTUAL_GPU, "segments"),
            free=Fact("free", 3 * MIB, "bytes", Source.VIRTUAL_GPU, "OOM event"), device=0,
        ),
    )  # fmt: skip
