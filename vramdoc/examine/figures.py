"""The figures worth showing about a case, in reading order, each with its source. It computes sums and peaks, never a judgement."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

from vramdoc.facts import Fact, Source

if TYPE_CHECKING:
    from vramdoc.evidence.case import Case
    from vramdoc.evidence.oom import OomAnatomy
    from vramdoc.record.recording import Manifest

ANATOMY = (
    "requested", "total", "free", "allocated", "unallocated", "reserved", "private_pools",
    "allowed", "process",
)  # fmt: skip
"""The contract keys of design section 5, in the order of torch's own message."""


def figures(case: Case) -> tuple[Fact, ...]:
    """All figures of the case. A name appears once: the first, which is the stronger source, wins."""
    seen: dict[str, Fact] = {}
    for fact in _all(case):
        seen.setdefault(fact.name, fact)
    return tuple(seen.values())


def _all(case: Case) -> Iterator[Fact]:
    if case.oom is not None:
        yield from _anatomy(case.oom)
    if case.manifest is not None:
        yield from _run(case.manifest)
    if case.usage is not None:
        usage, where = case.usage, "trace and segments"
        peak = usage.peak
        yield Fact("reserved_peak", peak.reserved, "bytes", usage.source, where)
        yield Fact("active_peak", peak.active, "bytes", usage.source, where)
        yield Fact("reserved_end", usage.end.reserved, "bytes", usage.source, where)
        yield Fact("active_end", usage.end.active, "bytes", usage.source, where)
    if case.fragmentation is not None:
        held = case.fragmentation
        source = case.usage.source if case.usage is not None else Source.READ
        for name, value in (
            ("returnable", held.returnable_bytes),
            ("external_fragmentation", held.external_bytes),
            ("internal_fragmentation", held.internal_bytes),
            ("largest_inactive_block", held.largest_inactive_bytes),
            ("stranded", held.stranded_bytes),
            ("pending", held.pending_bytes or None),
            ("private_pools_inactive", held.private_pool_inactive_bytes or None),
        ):
            if value is not None:
                yield Fact(name, value, "bytes", source, "segments of the snapshot")


def _anatomy(oom: OomAnatomy) -> Iterator[Fact]:
    for name in ANATOMY:
        fact: Fact | None = getattr(oom, name)
        if fact is not None:
            yield Fact(name, fact.value, fact.unit, fact.source, fact.where)
    if oom.other_processes:
        total = sum(int(fact.value) for fact in oom.other_processes)
        first = oom.other_processes[0]
        yield Fact("other_processes", total, "bytes", first.source, first.where)
    if oom.largest_hole is not None:
        hole = oom.largest_hole
        yield Fact("largest_hole", hole.value, hole.unit, hole.source, hole.where)


def _run(manifest: Manifest) -> Iterator[Fact]:
    from vramdoc.evidence.source import source_of

    source = source_of(manifest)
    device = manifest.device
    if device is not None:
        yield Fact("device_total", device.total_bytes, "bytes", source, "device properties")
    weights = _detail_peak(manifest, "weight_bytes")
    kv = _detail_peak(manifest, "live_kv_bytes")
    if weights is not None:
        yield Fact("weights", weights, "bytes", source, "phase load")
    if kv is not None:
        yield Fact("kv_cache_peak", kv, "bytes", source, "bytes of all live caches")
    for name, key, attribute in (
        ("active_peak", "active_bytes.all.peak", "active_peak_bytes"),
        ("reserved_peak", "reserved_bytes.all.peak", "reserved_peak_bytes"),
    ):
        values = [getattr(phase, attribute) for phase in manifest.phases]
        known = [v for v in (*values, manifest.statistics.get(key)) if v is not None]
        if known:
            yield Fact(name, max(known), "bytes", source, f"memory_stats {key}")
    free = [p.driver_free_bytes for p in manifest.phases if p.driver_free_bytes is not None]
    if free:
        yield Fact("driver_free_least", min(free), "bytes", source, "cudaMemGetInfo at phase ends")
    for name, key in (
        ("alloc_retries", "num_alloc_retries"),
        ("device_alloc", "num_device_alloc"),
        ("device_free", "num_device_free"),
    ):
        if key in manifest.statistics:
            yield Fact(name, manifest.statistics[key], "count", source, f"memory_stats {key}")


def _detail_peak(manifest: Manifest, key: str) -> int | None:
    values = [int(p.detail[key]) for p in manifest.phases if key in p.detail]
    return max(values, default=None)
