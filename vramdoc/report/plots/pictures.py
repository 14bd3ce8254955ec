"""From a report, a comparison or a capacity grid to named picture files. It picks what can be drawn; the modules beside it draw."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from vramdoc.evidence.lifetimes import lifetimes
from vramdoc.evidence.origin import device_of_interest, rows_of, trace_of
from vramdoc.evidence.segment_lives import segment_lives
from vramdoc.evidence.timeline import timeline
from vramdoc.report.plots.capacity import CapacityPicture
from vramdoc.report.plots.comparison import ComparisonPicture
from vramdoc.report.plots.lifetimes import LifetimePicture
from vramdoc.report.plots.segments import SegmentPicture
from vramdoc.report.plots.style import HEIGHT, Draw, rendered
from vramdoc.report.plots.usage import Moment, UsagePicture
from vramdoc.units import format_bytes

if TYPE_CHECKING:
    from vramdoc.capacity.plan import Cell
    from vramdoc.evidence.case import Case
    from vramdoc.evidence.timeline import Timeline
    from vramdoc.report.comparison import Comparison
    from vramdoc.report.contents import Report
    from vramdoc.snapshot.model import Trace


@dataclass(frozen=True, slots=True)
class Drawing:
    """One picture before it is drawn."""

    name: str
    draw: Draw
    height: float = HEIGHT
    """Inches."""


def plot_report(report: Report) -> dict[str, bytes]:
    """Every picture the report's evidence allows, by file name; none without a snapshot."""
    pictures: dict[str, bytes] = {}
    for drawing in drawings(report):
        pictures |= rendered(drawing.name, drawing.draw, height=drawing.height)
    return pictures


def drawings(report: Report) -> Iterator[Drawing]:
    """What ``plot_report`` draws, in its order."""
    case = report.case
    snapshot = (case.oom_snapshot or case.snapshot) if case is not None else None
    if case is None or snapshot is None:
        return
    device = case.usage.device if case.usage is not None else device_of_interest(snapshot)
    trace = trace_of(snapshot, device)
    allocations = lifetimes(snapshot, device)
    levels = timeline(snapshot, device, allocations)
    failure = _failure(case, trace)
    if len(trace):
        usage = UsagePicture(
            levels=levels, failure=failure, phases=case.manifest.phases if case.manifest else (), total_bytes=_total(case)
        )  # fmt: skip
        yield Drawing("memory-over-time", usage.draw)
        yield Drawing("sizes-and-lifetimes", LifetimePicture(allocations=allocations).draw)
    lives = segment_lives(snapshot, device)
    if len(lives):
        moments = _moments(levels, failure, len(trace))
        layouts = [(title, lives.layout(event, allocations)) for title, event in moments]
        segments = SegmentPicture(layouts=[pair for pair in layouts if pair[1]], bars=_bars(case))
        yield Drawing("segment-map", segments.draw, segments.height)


def plot_comparison(comparison: Comparison, *, total_bytes: int | None = None) -> dict[str, bytes]:
    """The comparison of allocator configs as pictures; none when nothing was measured."""
    picture = ComparisonPicture(rows=comparison.rows, total_bytes=total_bytes)
    if all(row.reserved_peak is None for row in comparison.rows):
        return {}
    return rendered("alloc-configs", picture.draw, height=picture.height)


def plot_capacity(cells: Sequence[Cell], *, title: str = "What fits") -> dict[str, bytes]:
    """The capacity grid as pictures."""
    return rendered("capacity", CapacityPicture(cells=cells, title=title).draw) if cells else {}


def _failure(case: Case, trace: Trace) -> Moment | None:
    failures = rows_of(trace, "oom")
    if not len(failures):
        return None
    event = int(failures[-1])
    requested = (
        case.oom.requested.value
        if case.oom is not None and case.oom.requested is not None
        else int(trace.size[event])
    )
    return Moment(event=event, label=f"out of memory, asked for {format_bytes(int(requested))}")


def _total(case: Case) -> int | None:
    if case.manifest is not None and case.manifest.device is not None:
        return case.manifest.device.total_bytes
    fact = case.oom.total if case.oom is not None else None
    return int(fact.value) if fact is not None else None


def _moments(levels: Timeline, failure: Moment | None, events: int) -> list[tuple[str, int]]:
    """Peak and failure; the end where nothing failed. Once only, when they are one moment."""
    _, peak = levels.peak("active")
    last = ("At the failure", failure.event) if failure is not None else ("At the end", events - 1)
    return [last] if peak == last[1] else [("At peak active", peak), last]


def _bars(case: Case) -> list[tuple[str, int, str]]:
    """The failed request and what there was for it, to one scale."""
    oom = case.oom
    if oom is None or oom.requested is None:
        return []
    named = (
        ("failed request", oom.requested, "bad"),
        ("largest hole for it", oom.largest_hole, "idle"),
        ("free at the driver", oom.free, "allocated"),
    )
    return [(name, int(fact.value), colour) for name, fact, colour in named if fact is not None]
