"""Runs a golden script (one allocator call a line) through the simulator and prints what the harness prints.

Formats of scripts and output lines: the README beside the golden traces. The same scripts run against the real allocators.
"""

from __future__ import annotations

from collections.abc import Iterable

from vramdoc.allocator import AllocatorConfig, CachingAllocator, ConfigError, Device, OutOfMemory
from vramdoc.allocator.errors import InternalAssert

STATS = (
    "allocation", "segment", "active", "inactive_split", "allocated_bytes", "reserved_bytes", "active_bytes",
    "inactive_split_bytes", "requested_bytes",
)  # fmt: skip
STATES = {"active_allocated": "A", "active_pending_free": "P", "inactive": "F"}


def run_script(script: Iterable[str], release: str) -> list[str]:
    """Output lines of ``script`` under the allocator of ``release``."""
    return _Run(release).lines(script)


class _Run:
    def __init__(self, release: str) -> None:
        self.release = release
        self.device = Device(8 << 30)
        self.config = AllocatorConfig.parse("", release=release)
        self.allocator: CachingAllocator | None = None
        self.live: dict[str, int] = {}
        self.out: list[str] = []

    def lines(self, script: Iterable[str]) -> list[str]:
        for line in script:
            word, *rest = line.split()
            try:
                getattr(self, f"do_{word}")(*rest)
            except OutOfMemory as error:
                self.out.append("OOM " + str(error).split(" Of the allocated")[0])
            except ConfigError as error:
                self.out.append(f"ERR {error.reason}")
            except InternalAssert as error:
                self.out.append(f"ERR {error.message}")
        return self.out

    def ready(self) -> CachingAllocator:
        if self.allocator is None:
            self.allocator = CachingAllocator(self.config, self.device)
        return self.allocator

    def do_total(self, size: str) -> None:
        self.device.capacity = int(size)

    def do_cfg(self, text: str = "") -> None:
        if self.allocator is not None:
            self.allocator.set_allocator_settings(text)
            return
        try:
            self.config = self.config.reset(text)
        except ConfigError as error:
            self.config = error.partial
            raise

    def do_hist(self, _entries: str) -> None:
        self.ready()

    def do_frac(self, fraction: str) -> None:
        self.ready().set_per_process_memory_fraction(float(fraction))

    def do_a(self, name: str, size: str, stream: str) -> None:
        address = self.ready().malloc(int(size), pointer(int(stream)))
        self.live[name] = address
        self.out.append(f"A {name} {address:#x}")

    def do_f(self, name: str) -> None:
        if name in self.live:
            self.ready().free(self.live.pop(name))

    def do_rs(self, name: str, stream: str) -> None:
        if name in self.live:
            self.ready().record_stream(self.live[name], pointer(int(stream)))

    def do_ev(self, ready: str) -> None:
        self.device.events_ready = ready == "1"

    def do_e(self) -> None:
        self.ready().empty_cache()

    def do_snap(self) -> None:
        for s in self.ready().snapshot()["segments"]:
            blocks = " ".join(
                f"{b['size']}{STATES[b['state']]}{b['requested_size']}" for b in s["blocks"]
            )
            stream = f"{s['stream']:#x}" if s["stream"] else "0"
            self.out.append(
                f"SEG {s['address']:x} total={s['total_size']} alloc={s['allocated_size']} active={s['active_size']} "
                f"req={s['requested_size']} stream={stream} {s['segment_type']}{' exp' if s['is_expandable'] else ''} : {blocks}"
            )

    def do_trace(self) -> None:
        for event in self.ready().snapshot()["device_traces"][0]:
            address = event.get("addr", event.get("device_free"))
            stream = f"{event['stream']:#x}" if event["stream"] else "0"
            self.out.append(f"T {event['action']} {address:x} {event['size']} {stream}")

    def do_stats(self) -> None:
        stats = self.ready().memory_stats()

        def cell(key: str) -> str:
            return "/".join(
                str(stats[f"{key}.{m}"]) for m in ("current", "peak", "allocated", "freed")
            )

        parts = [
            f"{name}="
            + ",".join(cell(f"{name}.{pool}") for pool in ("all", "small_pool", "large_pool"))
            for name in STATS
        ]
        for short, key in (("oa", "oversize_allocations"), ("os", "oversize_segments")):
            parts.append(f"{short}={stats[key + '.current']}/{stats[key + '.peak']}")
        parts[-2:-2] = [f"retries={stats['num_alloc_retries']}", f"ooms={stats['num_ooms']}"]
        parts.append(
            f"sync={stats['num_sync_all_streams']} dalloc={stats['num_device_alloc']} dfree={stats['num_device_free']} "
            f"driver_used={self.device.used}"
        )
        self.out.append("STATS " + " ".join(parts))


def pointer(stream: int) -> int:
    """The stream pointer behind a number in a script."""
    return 0x100 + 16 * stream if stream else 0
