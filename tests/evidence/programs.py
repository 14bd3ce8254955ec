"""Random programs played on the simulator, whose own accounts are the oracle for what is measured from its snapshot."""

import random

from vramdoc.allocator import AllocatorConfig, CachingAllocator, Device, OutOfMemory
from vramdoc.snapshot.schema import snapshot_from_plain

GIB, MIB = 1 << 30, 1 << 20
SIZES = (1, 700, 4096, 300_000, MIB, MIB + 1, 3 * MIB, 9 * MIB, 20 * MIB + 512, 70 * MIB)


def played(seed, *, conf="", capacity=GIB, steps=120, release="2.14"):
    """Run a program; return the allocator and the snapshot as the reader gives it."""
    rng = random.Random(seed)
    config = AllocatorConfig.parse(conf, release=release)
    allocator = CachingAllocator(config, Device(capacity=capacity), release=release)
    live = []
    for _ in range(steps):
        if live and rng.random() < 0.45:
            allocator.free(live.pop(rng.randrange(len(live))))
        else:
            try:
                live.append(allocator.malloc(rng.choice(SIZES), stream=rng.choice((0, 0, 7))))
            except OutOfMemory:
                break
        if rng.random() < 0.01:
            allocator.empty_cache()
    taken = allocator.snapshot()
    taken["allocator_settings"] = {
        "PYTORCH_CUDA_ALLOC_CONF": conf,
        "expandable_segments": "expandable_segments:True" in conf,
    }
    return allocator, snapshot_from_plain(taken)
