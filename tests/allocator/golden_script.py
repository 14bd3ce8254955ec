"""Runs a golden script (one allocator call a line) through the simulator and prints what the harness prints.

Formats of scripts and output lines: the README beside the golden traces. The same scripts run against the real allocators.
"""

from __future__ import annotations

from collections.abc import Iterable
from contextlib import ExitStack

from vramdoc.allocator import AllocatorConfig, CachingAllocator, ConfigError, Device, OutOfMemory
from vramdoc.allocator.errors import AllocatorError

STATS = (
    "allocation", "segment", "active", "inactive_split", "allocated_bytes", "reserved_bytes", "active_bytes",
    "inactive_split_bytes", "requested_bytes",
)  # fmt: skip
STATES = {"active_allocated": "A", "active_pending_free": "P", "inactive": "F"}


def run_script(script: Iterable[str], release: str, *, pools: bool = False) -> list[str]:
    """Output lines of ``script`` under the allocator of ``release``.

    With ``pools``, in the extended form: pool ids in segment lines, more of an OOM message, and the words pool, enter, leave, drop
    (MemPool), gbegin, gend, grel (graph captures).
    """
    return _Run(release, pools=pools).lines(script)


class _Run:
    def __init__(self, release: str, *, pools: bool) -> None:
        self.show_pools = pools
        self.pools: dict[str, tuple[int, int]] = {}
        self.scopes: dict[str, ExitStack] = {}
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
                end = " If reserved" if self.show_pools else " Of the allocated"
                self.out.append("OOM " + str(error).split(end)[0])
            except ConfigError as error:
                self.out.append(f"ERR {error.reason}")
            except AllocatorError as error:
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
        self.ready().current_stream = pointer(int(stream))
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

    def do_pool(self, name: str, use_on_oom: str, no_split: str) -> None:
        rules, allocator = self.ready().rules, self.ready()
        self.pools[name] = allocator.create_pool(
            use_on_oom=rules.use_on_oom and use_on_oom == "1",
            no_split=rules.no_split and no_split == "1",
        )
        self.out.append("P {} {},{}".format(name, *self.pools[name]))

    def do_enter(self, name: str) -> None:
        self.scopes[name] = ExitStack()
        self.scopes[name].enter_context(self.ready().use_pool(self.pools[name]))

    def do_leave(self, name: str) -> None:
        self.scopes.pop(name).close()

    def do_drop(self, name: str) -> None:
        self.ready().destroy_pool(self.pools.pop(name))

    def do_gbegin(self, name: str, stream: str) -> None:
        self.pools[name] = self.ready().begin_capture(pointer(int(stream)))
        self.out.append("P {} {},{}".format(name, *self.pools[name]))

    def do_gend(self, name: str) -> None:
        self.ready().end_capture(self.pools[name])

    def do_grel(self, name: str) -> None:
        self.ready().release_pool(self.pools.pop(name))

    def do_snap(self) -> None:
        for s in self.ready().snapshot()["segments"]:
            blocks = " ".join(
                f"{b['size']}{STATES[b['state']]}{b['requested_size']}" for b in s["blocks"]
            )
            stream = f"{s['stream']:#x}" if s["stream"] else "0"
            pool = " pool={},{}".format(*s["segment_pool_id"]) if self.show_pools else ""
            self.out.append(
                f"SEG {s['address']:x} total={s['total_size']} alloc={s['allocated_size']} active={s['active_size']} "
                f"req={s['requested_size']} stream={stream} {s['segment_type']}{' exp' if s['is_expandable'] else ''}{pool} : {blocks}"
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
