"""The segment map as text: every pool's bytes in cells to scale, and the failed request beside the largest hole.

Used by the terminal and the ticket report. Without a snapshot the device's own account is drawn from the message instead.
It measures nothing but where a block lies in its row, and draws only what was recorded.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import TypeAlias

from vramdoc.evidence.case import Case
from vramdoc.evidence.oom import OomAnatomy
from vramdoc.facts import Fact
from vramdoc.snapshot.model import SegmentInfo, Snapshot
from vramdoc.units import format_bytes

Line: TypeAlias = list[tuple[str, str]]
"""Pieces of one line: ``(text, style)``, the style one of rich's; without colour the characters alone say it."""

USED, MIXED, PENDING, IDLE, UNMAPPED = "used", "used and idle", "pending free", "idle", "unmapped"
CELLS = {
    USED: ("█", "#", "blue"),
    MIXED: ("▒", "+", "yellow"),
    PENDING: ("▓", "p", "magenta"),
    IDLE: ("░", ".", "yellow"),
    UNMAPPED: ("·", "_", "dim"),
}
"""State of a cell: character, ASCII form, style."""

ROUNDING = 512
"""Part of the device below which figures printed to two decimals need not add up."""
MAX_GROUPS = 6
"""Rows of pools that are drawn; the rest is named with its bytes."""
PURE = 7 / 8
"""Share of a cell from which on one state stands for all of it: the eighth that is lost is finer than a character can show."""
_STATES = {"active_allocated": USED, "active_pending_free": PENDING, "inactive": IDLE}


@dataclass(slots=True)
class _Group:
    """The segments of one pool, size class and stream: free memory of one cannot serve another."""

    name: str
    segments: list[SegmentInfo] = field(default_factory=list)
    total: int = 0


def map_lines(case: Case | None, *, width: int, ascii_only: bool, rows: int = 8) -> list[Line]:
    """Draw the case's memory in at most ``rows`` lines of cells plus title, legend and request; empty without data."""
    if case is None:
        return []
    snapshot = case.oom_snapshot or case.snapshot
    device = _device(case, snapshot)
    segments = [s for s in snapshot.segments if s.device == device] if snapshot else []
    if not segments:
        return _device_bar(case.oom, width=width, ascii_only=ascii_only) if case.oom else []
    moment = "at the out-of-memory error" if case.oom_snapshot else "at the end of the recording"
    lines = _pools(segments, moment, width=width, ascii_only=ascii_only, rows=rows)
    return lines + _request_lines(
        case.oom, _largest_idle(segments), width=width, ascii_only=ascii_only
    )


def map_text(case: Case | None, *, width: int, ascii_only: bool = False, rows: int = 8) -> str:
    """``map_lines`` without styles, one line of text a line."""
    lines = map_lines(case, width=width, ascii_only=ascii_only, rows=rows)
    return "\n".join("".join(text for text, _ in line).rstrip() for line in lines)


def drawn_facts(case: Case | None) -> frozenset[str]:
    """Names of the facts whose figures ``map_lines`` prints beside what it draws, so that nobody need print them twice."""
    if case is None or case.oom is None or case.oom.requested is None:
        return frozenset()
    bars = ("requested", "largest_hole", "free")
    has_segments = any(s.segments for s in (case.oom_snapshot, case.snapshot) if s is not None)
    whole = has_segments or not _device_parts(case.oom, _bytes(case.oom.total))
    return frozenset(bars if whole else (*bars, "total", "allocated", "unallocated"))


def _device(case: Case, snapshot: Snapshot | None) -> int:
    """The device to draw: the one that failed, else the one that was measured, else the fullest."""
    if case.oom is not None and case.oom.device is not None:
        return case.oom.device
    if case.usage is not None:
        return case.usage.device
    # Not evidence.origin's choice, which weighs traces too: it would load numpy for a crash text, which has neither.
    held: Counter[int] = Counter()
    for segment in snapshot.segments if snapshot else ():
        held[segment.device] += segment.total_size
    return max(sorted(held), key=held.__getitem__, default=0)


def _groups(segments: Sequence[SegmentInfo]) -> list[_Group]:
    """Large before small before private pools; within these by stream."""
    found: dict[tuple[object, ...], _Group] = {}
    for segment in sorted(segments, key=lambda s: s.address):
        private = segment.segment_pool_id != (0, 0)
        key = (private, segment.segment_pool_id, segment.segment_type != "large", segment.stream)
        if key not in found:
            pool = "private {}.{} ".format(*segment.segment_pool_id) if private else ""
            stream = f" stream {segment.stream:#x}" if segment.stream else ""
            found[key] = _Group(name=f"{pool}{segment.segment_type}{stream}")
        found[key].segments.append(segment)
        found[key].total += segment.total_size
    return [found[key] for key in sorted(found)]


def _pools(
    segments: Sequence[SegmentInfo], moment: str, *, width: int, ascii_only: bool, rows: int
) -> list[Line]:
    groups = _groups(segments)
    largest = sorted(groups, key=lambda g: -g.total)[:MAX_GROUPS]
    shown = [g for g in groups if g in largest]
    name_width = max(len(g.name) for g in shown) + 2
    columns = max(8, width - name_width)
    total = sum(g.total for g in shown)
    cell = _round_up(max(1, -(-total // (columns * max(1, rows)))))
    reserved = sum(g.total for g in groups)
    plural = "" if len(segments) == 1 else "s"
    lines: list[Line] = [
        [
            ("SEGMENT MAP ", "bold"),
            (
                f"{moment}: {format_bytes(reserved)} in {len(segments)} segment{plural}",
                "",
            ),
        ]
    ]
    seen: set[str] = set()
    for group in shown:
        states = _cells(group, cell)
        seen.update(states)
        for start in range(0, len(states), columns):
            name = group.name if start == 0 else ""
            lines.append(
                [
                    (name.ljust(name_width), ""),
                    *_run(states[start : start + columns], ascii_only=ascii_only),
                ]
            )
    if len(shown) < len(groups):
        rest = [g for g in groups if g not in shown]
        lines.append(
            [
                (
                    f"and {format_bytes(sum(g.total for g in rest))} in {len(rest)} further pools or streams",
                    "dim",
                )
            ]
        )
    lines.append(_legend(seen, cell, ascii_only=ascii_only))
    return lines


def _round_up(cell: int) -> int:
    """The next size of one, two or five times a power of ten of KiB or MiB, so that a cell is a round figure."""
    unit = 1 << 10 if cell < 1 << 20 else 1 << 20
    scale = unit
    while True:
        for factor in (1, 2, 5):
            if factor * scale >= cell:
                return factor * scale
        scale *= 10


def _pieces(group: _Group) -> Iterator[tuple[str, int]]:
    """``(state, bytes)`` along the group's addresses; gaps inside one expandable range count as unmapped."""
    previous: SegmentInfo | None = None
    for segment in group.segments:
        if previous is not None and previous.is_expandable and segment.is_expandable:
            gap = segment.address - previous.address - previous.total_size
            # A larger gap is another reservation of addresses, not a hole in this one.
            if 0 < gap <= group.total:
                yield UNMAPPED, gap
        covered = 0
        for block in segment.blocks:
            yield _STATES.get(block.state, USED), block.size
            covered += block.size
        if covered < segment.total_size:
            yield IDLE, segment.total_size - covered
        previous = segment


def _cells(group: _Group, cell: int) -> list[str]:
    """The state of every cell of ``cell`` bytes: what (nearly) all of it is in, or ``MIXED``."""
    sums: list[dict[str, int]] = []
    offset = 0
    for state, size in _pieces(group):
        end = offset + size
        while offset < end:
            index = offset // cell
            if index == len(sums):
                sums.append({})
            step = min(end, (index + 1) * cell) - offset
            sums[index][state] = sums[index].get(state, 0) + step
            offset += step
    return [_state(content) for content in sums]


def _state(content: dict[str, int]) -> str:
    most = max(content, key=lambda state: content[state])
    if content[most] >= PURE * sum(content.values()) or not (
        content.get(USED) and content.get(IDLE)
    ):
        return most
    return MIXED


def _run(states: Sequence[str], *, ascii_only: bool) -> Line:
    """Cells as pieces, equal neighbours in one."""
    line: Line = []
    for state in states:
        character, plain, style = CELLS[state]
        text = plain if ascii_only else character
        if line and line[-1][1] == style and line[-1][0][-1] == text:
            line[-1] = (line[-1][0] + text, style)
        else:
            line.append((text, style))
    return line


def _legend(seen: set[str], cell: int, *, ascii_only: bool) -> Line:
    line: Line = [(f"one cell {format_bytes(cell)}: ", "dim")]
    for state, (character, plain, style) in CELLS.items():
        if state in seen:
            line += [(plain if ascii_only else character, style), (f" {state}  ", "dim")]
    return line


def _largest_idle(segments: Sequence[SegmentInfo]) -> int:
    return max((b.size for s in segments for b in s.blocks if b.state == "inactive"), default=0)


def _request_lines(
    oom: OomAnatomy | None, largest_idle: int, *, width: int, ascii_only: bool
) -> list[Line]:
    """The failed request and the largest hole, on one scale."""
    if oom is None or oom.requested is None:
        return []
    requested, hole = _bytes(oom.requested), _bytes(oom.largest_hole)
    rows = [("failed request", requested, "red")]
    if oom.largest_hole is not None:
        rows.append(("largest hole for it", hole, "yellow"))
    elif largest_idle:
        rows.append(("largest idle block", largest_idle, "yellow"))
    if oom.free is not None:
        rows.append(("free at the driver", _bytes(oom.free), "green"))
    longest = max(size for _, size, _ in rows)
    room = max(10, width - 36)
    bar = "=" if ascii_only else "━"
    return [
        [
            (f"{name:<20}", ""),
            (bar * max(1 if size else 0, round(size * room / max(1, longest))), style),
            (f" {format_bytes(size)}", ""),
        ]
        for name, size, style in rows
    ]


def _bytes(fact: Fact | None) -> int:
    return int(fact.value) if fact is not None and isinstance(fact.value, (int, float)) else 0


def _device_bar(oom: OomAnatomy, *, width: int, ascii_only: bool) -> list[Line]:
    """The whole device as one bar, from the figures of the message; empty when they do not add up to a device."""
    total = _bytes(oom.total)
    parts = _device_parts(oom, total)
    if total <= 0 or not parts or sum(size for _, size, _, _, _ in parts) > total:
        return _request_lines(oom, 0, width=width, ascii_only=ascii_only)
    room = max(10, width - 2)
    bar: Line = []
    legend: list[Line] = []
    drawn, summed = 0, 0
    for name, size, character, plain, style in parts:
        summed += size
        cells = round(summed * room / total) - drawn
        drawn += cells
        mark = plain if ascii_only else character
        bar.append((mark * cells, style))
        legend.append([(f"{mark} ", style), (f"{name} {format_bytes(size)}  ", "")])
    title: Line = [("DEVICE ", "bold"), (f"as the message gives it: {format_bytes(total)}", "")]
    return [
        title,
        bar,
        *_wrapped(legend, width),
        *_request_lines(oom, 0, width=width, ascii_only=ascii_only),
    ]


def _device_parts(oom: OomAnatomy, total: int) -> list[tuple[str, int, str, str, str]]:
    """``(name, bytes, character, ASCII form, style)`` of what the device holds, in the order of the bar."""
    reserved = _bytes(oom.reserved) or _bytes(oom.allocated) + _bytes(oom.unallocated)
    if not reserved or oom.free is None:
        return []
    allocated = _bytes(oom.allocated) or reserved
    others = sum(_bytes(fact) for fact in oom.other_processes)
    own_rest = max(0, _bytes(oom.process) - reserved)
    free = _bytes(oom.free)
    unexplained = total - reserved - own_rest - others - free
    if unexplained * ROUNDING < total:
        unexplained = 0
    parts = [
        ("allocated", allocated, "█", "#", "blue"),
        ("reserved, unallocated", reserved - allocated, "▒", "+", "yellow"),
        ("this process outside PyTorch", own_rest, "▓", "n", "magenta"),
        ("other processes", others, "▚", "o", "red"),
        ("not accounted for", unexplained, "?", "?", "dim"),
        ("free", free, "░", ".", "green"),
    ]
    return [part for part in parts if part[1] > 0]


def _wrapped(pieces: Sequence[Line], width: int) -> list[Line]:
    """Legend entries in as many lines as they need."""
    lines: list[Line] = []
    used = width + 1
    for piece in pieces:
        length = sum(len(text) for text, _ in piece)
        if used + length > width:
            lines.append([])
            used = 0
        lines[-1].extend(piece)
        used += length
    return lines
