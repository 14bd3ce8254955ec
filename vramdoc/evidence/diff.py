"""What differs between two cases: configs and versions first, then levels, call sites, phases and segments. It judges nothing.

Call sites are compared at each case's own peak of active memory, so that two moments of the same meaning stand side by side.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from vramdoc.evidence.attribution import Site
from vramdoc.evidence.callsites import sited_lifetimes
from vramdoc.evidence.origin import device_of_interest
from vramdoc.evidence.timeline import LEVELS, timeline
from vramdoc.units import format_bytes

if TYPE_CHECKING:
    from vramdoc.evidence.callsites import SiteUse
    from vramdoc.evidence.case import Case
    from vramdoc.record.manifest import Manifest
    from vramdoc.snapshot.model import Snapshot

SETTINGS = (
    "max_split_size",
    "garbage_collection_threshold",
    "expandable_segments",
    "roundup_power2_divisions",
)
"""Keys of allocator_settings that change what the allocator does."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Difference:
    """A circumstance that was not the same: a version, a setting, the device, the workload. Empty where one side has none."""

    name: str
    before: str
    after: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Change:
    """Bytes, and how many things hold them, on both sides."""

    name: str
    before: int
    after: int
    before_count: int | None = None
    after_count: int | None = None

    @property
    def change(self) -> int:
        """Bytes more in the second."""
        return self.after - self.before


@dataclass(frozen=True, slots=True, kw_only=True)
class Diff:
    """Two cases side by side. Only what differs is listed, but for the levels, which always are."""

    before: str
    after: str
    circumstances: tuple[Difference, ...]
    levels: tuple[Change, ...]
    """``reserved_peak``, ``active_end`` ..., in the order of ``timeline.LEVELS`` from the widest."""
    sites: tuple[Change, ...]
    """By call site at the peak of active memory, the largest change first."""
    phases: tuple[Change, ...]
    """Peak active bytes by phase name, in the order of the first run, then of the second."""
    segments: tuple[Change, ...]
    """Reserved bytes by pool, stream and segment size, the largest change first."""
    missing: tuple[str, ...]
    """What could not be compared and why, in sentences."""


def compare(before: Case, after: Case) -> Diff:
    """Compare two cases of any kind; parts that one of them lacks are named in ``missing``."""
    pair = (before, after)
    snapshots = [case.oom_snapshot or case.snapshot for case in pair]
    missing = [f"{case.name}: {reason}" for case in pair for reason in case.missing]
    first, second = snapshots
    sites: tuple[Change, ...] = ()
    segments: tuple[Change, ...] = ()
    if first is not None and second is not None:
        sites = _site_changes(_peak_sites(first), _peak_sites(second))
        segments = _by_size_of_change(_changes(_segment_use(first), _segment_use(second)))
    else:
        lacking = [
            case.name for case, snapshot in zip(pair, snapshots, strict=True) if snapshot is None
        ]
        missing.append(
            f"call sites and segments need an allocator snapshot of both; {' and '.join(lacking)} has none"
        )
    return Diff(
        before=before.name,
        after=after.name,
        circumstances=tuple(_differences(_circumstances(before), _circumstances(after))),
        levels=tuple(_levels(before, after)),
        sites=sites,
        phases=tuple(c for c in _changes(_phase_peaks(before), _phase_peaks(after)) if c.change),
        segments=segments,
        missing=tuple(dict.fromkeys(missing)),
    )


def _circumstances(case: Case) -> Mapping[str, str]:
    """Everything that may explain a difference, as text by name."""
    known: dict[str, Any] = {}
    snapshot = case.oom_snapshot or case.snapshot
    if snapshot is not None:
        known["PYTORCH_CUDA_ALLOC_CONF"] = snapshot.alloc_conf
        known.update(
            (key, snapshot.allocator_settings[key])
            for key in SETTINGS
            if key in snapshot.allocator_settings
        )
    if case.manifest is not None:
        known.update(_circumstances_of_run(case.manifest))
    return {name: str(value) for name, value in known.items()}


def _circumstances_of_run(manifest: Manifest) -> Mapping[str, Any]:
    device = manifest.device
    return {
        "PYTORCH_CUDA_ALLOC_CONF": manifest.alloc_conf,
        **manifest.versions,
        **manifest.platform,
        **manifest.environment,
        **({} if device is None else {"device": device.name, "device_total": device.total_bytes}),
        **({"workload": manifest.workload["line"]} if "line" in manifest.workload else {}),
        "exit": manifest.exit.kind,
    }


def _differences(before: Mapping[str, str], after: Mapping[str, str]) -> Iterable[Difference]:
    for name in dict.fromkeys((*before, *after)):
        one, other = before.get(name, ""), after.get(name, "")
        if one != other:
            yield Difference(name=name, before=one, after=other)


def _levels(before: Case, after: Case) -> Iterable[Change]:
    if before.usage is None or after.usage is None:
        return
    for moment in ("peak", "end"):
        for level in reversed(LEVELS):
            one, other = (getattr(getattr(case.usage, moment), level) for case in (before, after))
            yield Change(name=f"{level}_{moment}", before=one, after=other)


def _peak_sites(snapshot: Snapshot) -> dict[Site, SiteUse]:
    device = device_of_interest(snapshot)
    sited = sited_lifetimes(snapshot, device)
    _, event = timeline(snapshot, device, sited.lifetimes).peak("active")
    return {use.site: use for use in sited.use_after(event)}


def _site_changes(before: dict[Site, SiteUse], after: dict[Site, SiteUse]) -> tuple[Change, ...]:
    """Pair sites that are equal; then those whose line moved, when path and function leave no doubt."""
    moved = _moved_lines(before.keys() - after.keys(), after.keys() - before.keys())
    changes = []
    for site in before.keys() | (after.keys() - set(moved.values())):
        one, other = before.get(site), after.get(moved.get(site, site))
        name = f"{site} -> line {moved[site].line}" if site in moved else str(site)
        changes.append(
            Change(
                name=name,
                before=0 if one is None else one.bytes,
                after=0 if other is None else other.bytes,
                before_count=0 if one is None else one.count,
                after_count=0 if other is None else other.count,
            )
        )
    return _by_size_of_change(changes)


def _moved_lines(gone: Iterable[Site], new: Iterable[Site]) -> dict[Site, Site]:
    places: dict[tuple[str, str], tuple[list[Site], list[Site]]] = defaultdict(lambda: ([], []))
    for side, sites in enumerate((gone, new)):
        for site in sites:
            places[site.path, site.function][side].append(site)
    return {old[0]: now[0] for old, now in places.values() if len(old) == len(now) == 1}


def _phase_peaks(case: Case) -> dict[str, tuple[int, int]]:
    """(highest peak of active bytes, number of phases) by name."""
    found: dict[str, tuple[int, int]] = {}
    for phase in () if case.manifest is None else case.manifest.phases:
        peak = phase.active_peak_bytes
        if peak is not None:
            highest, count = found.get(phase.name, (0, 0))
            found[phase.name] = (max(highest, peak), count + 1)
    return found


def _segment_use(snapshot: Snapshot) -> dict[str, tuple[int, int]]:
    """(reserved bytes, number of segments) by what a segment is."""
    device = device_of_interest(snapshot)
    size: Counter[str] = Counter()
    count: Counter[str] = Counter()
    for segment in snapshot.segments:
        if segment.device != device:
            continue
        pool = "" if segment.segment_pool_id == (0, 0) else f", pool {segment.segment_pool_id}"
        kind = "expandable" if segment.is_expandable else f"{format_bytes(segment.total_size)} each"
        name = f"{segment.segment_type}, stream {segment.stream}{pool}, {kind}"
        size[name] += segment.total_size
        count[name] += 1
    return {name: (size[name], count[name]) for name in size}


def _changes(
    before: dict[str, tuple[int, int]], after: dict[str, tuple[int, int]]
) -> Iterable[Change]:
    for name in dict.fromkeys((*before, *after)):
        (one, one_count), (other, other_count) = before.get(name, (0, 0)), after.get(name, (0, 0))
        yield Change(
            name=name, before=one, after=other, before_count=one_count, after_count=other_count
        )


def _by_size_of_change(changes: Iterable[Change]) -> tuple[Change, ...]:
    differing = (c for c in changes if c.change or c.before_count != c.after_count)
    return tuple(sorted(differing, key=lambda c: (-abs(c.change), c.name)))
