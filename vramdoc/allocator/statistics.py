"""The counters behind torch.cuda.memory_stats(), under PyTorch's own names (c10/core/CachingDeviceAllocator.h)."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import ClassVar

POOLS = ("all", "small_pool", "large_pool")


class Stat:
    """One counter with its peak and its totals."""

    __slots__ = ("allocated", "current", "freed", "peak")

    def __init__(self) -> None:
        self.current = self.peak = self.allocated = self.freed = 0

    def increase(self, amount: int) -> None:
        """Add ``amount``; the peak follows."""
        self.current += amount
        self.peak = max(self.peak, self.current)
        self.allocated += amount

    def decrease(self, amount: int) -> None:
        """Take ``amount`` away; the total of what was taken follows."""
        self.current -= amount
        self.freed += amount

    def items(self) -> Iterator[tuple[str, int]]:
        """Metrics by torch's names, in alphabetical order."""
        for name in ("allocated", "current", "freed", "peak"):
            yield name, getattr(self, name)


class PoolStat:
    """One statistic for all blocks, for those of small pools and for those of large pools."""

    __slots__ = ("all", "large", "small")

    def __init__(self) -> None:
        self.all, self.small, self.large = Stat(), Stat(), Stat()

    def change(self, amount: int, *, small: bool) -> None:
        """Increase by a positive ``amount``, decrease by a negative one; nothing moves for zero."""
        part = self.small if small else self.large
        if amount > 0:
            self.all.increase(amount)
            part.increase(amount)
        elif amount < 0:
            self.all.decrease(-amount)
            part.decrease(-amount)

    def each(self) -> tuple[tuple[str, Stat], ...]:
        """The three counters by torch's names of the pools."""
        return tuple(zip(POOLS, (self.all, self.small, self.large), strict=True))


class Statistics:
    """All counters of one device; attribute names are torch's key prefixes."""

    BY_POOL: ClassVar = (
        "active",
        "active_bytes",
        "allocated_bytes",
        "allocation",
        "inactive_split",
        "inactive_split_bytes",
        "requested_bytes",
        "reserved_bytes",
        "segment",
    )
    OVERSIZE: ClassVar = ("oversize_allocations", "oversize_segments")
    SCALARS: ClassVar = (
        "num_alloc_retries",
        "num_device_alloc",
        "num_device_free",
        "num_oom_rejections",
        "num_ooms",
        "num_sync_all_streams",
    )

    def __init__(self) -> None:
        self.active = PoolStat()
        self.active_bytes = PoolStat()
        self.allocated_bytes = PoolStat()
        self.allocation = PoolStat()
        self.inactive_split = PoolStat()
        self.inactive_split_bytes = PoolStat()
        self.requested_bytes = PoolStat()
        self.reserved_bytes = PoolStat()
        self.segment = PoolStat()
        self.oversize_allocations = Stat()
        self.oversize_segments = Stat()
        self.num_alloc_retries = 0
        self.num_device_alloc = 0
        self.num_device_free = 0
        self.num_oom_rejections = 0
        self.num_ooms = 0
        self.num_sync_all_streams = 0
        self.private_pools: dict[tuple[int, int], PoolStat] = {}
        """Reserved bytes by private pool id; entries outlive their pool."""

    def counters(self) -> Iterator[tuple[str, Stat]]:
        """Every counter with a peak, by the key of torch.cuda.memory_stats() without its metric."""
        for name in self.BY_POOL:
            for pool, stat in getattr(self, name).each():
                yield f"{name}.{pool}", stat
        for name in self.OVERSIZE:
            yield name, getattr(self, name)
        for (first, second), pool_stat in self.private_pools.items():
            for pool, stat in pool_stat.each():
                yield f"reserved_bytes_by_private_pools.{first}_{second}.{pool}", stat

    def flat(
        self, *, max_split_size: int, rejections: bool, private_pools: bool
    ) -> Mapping[str, int]:
        """torch.cuda.memory_stats(): sorted flat keys, without those that the release does not have yet."""
        flat = {
            f"{key}.{metric}": value
            for key, stat in self.counters()
            if private_pools or not key.startswith("reserved_bytes_by_private_pools")
            for metric, value in stat.items()
        }
        flat |= {name: getattr(self, name) for name in self.SCALARS}
        if not rejections:
            del flat["num_oom_rejections"]
        # The C++ size_t leaves through a signed 64-bit integer: unlimited shows as -1.
        flat["max_split_size"] = (max_split_size + (1 << 63)) % (1 << 64) - (1 << 63)
        return dict(sorted(flat.items()))

    def reset_peaks(self) -> None:
        """torch.cuda.reset_peak_memory_stats()."""
        for _, stat in self.counters():
            stat.peak = stat.current

    def reset_accumulated(self) -> None:
        """torch.cuda.reset_accumulated_memory_stats()."""
        for _, stat in self.counters():
            stat.allocated = stat.freed = 0
        for name in self.SCALARS:
            setattr(self, name, 0)
