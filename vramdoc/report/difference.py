"""Two runs side by side: what was not the same, then where the bytes went. For the terminal, a ticket, and programs.

It compares nothing (``evidence.diff`` did) and decides nothing about which change matters: the largest comes first.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import asdict
from typing import Any

from rich.table import Table
from rich.text import Text

from vramdoc.evidence.diff import Change, Diff, Difference
from vramdoc.report import to_markdown, words
from vramdoc.report.to_terminal import WIDE, Screen
from vramdoc.units import format_bytes

DIFFERENCE_SCHEMA = 1
ROWS = 12
"""Rows of a ranking on the screen."""
_SECTIONS = (
    ("LEVELS", "levels", False),
    ("CALL SITES at peak active", "sites", True),
    ("PHASES, peak active", "phases", True),
    ("SEGMENTS, reserved", "segments", True),
)
"""Heading, field of ``Diff``, and whether its changes count things."""


def render_difference_json(found: Diff) -> str:
    """One object: ``circumstances``, ``levels``, ``sites``, ``phases``, ``segments``, ``missing``; bytes as integers."""
    body: dict[str, Any] = {
        "schema_version": DIFFERENCE_SCHEMA,
        "before": found.before,
        "after": found.after,
        "circumstances": [asdict(difference) for difference in found.circumstances],
        **{field: [_object(c) for c in getattr(found, field)] for _, field, _ in _SECTIONS},
        "missing": list(found.missing),
    }
    return json.dumps(body, indent=2) + "\n"


def render_difference(
    found: Diff,
    *,
    width: int = 80,
    colour: bool = False,
    ascii_only: bool = False,
) -> str:
    """The answer; then circumstances, since they may explain all the rest; then levels, call sites, phases and segments."""
    screen = Screen(width=width, colour=colour, ascii_only=ascii_only)
    screen.put(screen.styled(("DIFFERENCE  ", "bold"), (f"{found.before} → {found.after}", "dim")))
    screen.put(Text(screen.say(_answer(found))), "")
    if found.circumstances:
        columns = [("NOT THE SAME", "left"), ("before", "fold"), ("after", "fold")]
        screen.put(screen.table(columns, [_circumstance(d) for d in found.circumstances]))
    else:
        screen.put("Config, versions, device and workload are the same, as far as both say.")
    for heading, field, counts in _SECTIONS:
        changes: Sequence[Change] = getattr(found, field)
        if changes:
            screen.put(
                "", _change_table(screen, heading, changes[:ROWS], counts=counts and width >= WIDE)
            )
            if len(changes) > ROWS:
                screen.put(screen.styled((f"  and {len(changes) - ROWS} more with --json", "dim")))
    for sentence in found.missing:
        screen.put("", screen.styled((f"Not compared: {sentence}", "yellow")))
    return screen.text()


def render_difference_markdown(found: Diff) -> str:
    """The same for a ticket."""
    text, code, table = to_markdown.text, to_markdown.code, to_markdown.table
    parts = [f"## Difference: {code(found.before)} to {code(found.after)}", text(_answer(found))]
    if found.circumstances:
        rows = [
            [text(name), code(before), code(after)]
            for name, before, after in map(_circumstance, found.circumstances)
        ]
        parts += ["### Not the same", table(["", "before", "after"], rows)]
    for heading, field, _ in _SECTIONS:
        changes: Sequence[Change] = getattr(found, field)
        if changes:
            rows = [[text(_name(c)), *map(text, _sizes(c))] for c in changes[:ROWS]]
            parts += [f"### {heading.capitalize()}", table(["", "before", "after", "change"], rows)]
            if len(changes) > ROWS:
                parts.append(f"and {len(changes) - ROWS} more.")
    parts += [f"Not compared: {text(sentence)}" for sentence in found.missing]
    return "\n\n".join(parts) + "\n"


def _answer(found: Diff) -> str:
    """What grew and where, in a sentence."""
    peak = next((c for c in found.levels if c.name == "active_peak"), None)
    if peak is None:
        return "Neither side says what its peak was."
    if not peak.change:
        return f"Peak active memory is the same, {format_bytes(peak.after)}."
    rose = peak.change > 0
    said = f"Peak active memory {'rose' if rose else 'fell'} by {format_bytes(abs(peak.change))}, from {format_bytes(peak.before)} to {format_bytes(peak.after)}"
    same_way = [site for site in found.sites if (site.change > 0) == rose]
    top = max(same_way, key=lambda site: abs(site.change), default=None)
    return said + (f"; most of it at {top.name}, {_signed(top.change)}." if top else ".")


def _circumstance(found: Difference) -> tuple[str, str, str]:
    """Name, before and after, as people read them."""
    is_size = found.name.endswith("_total")

    def shown(side: str) -> str:
        return format_bytes(int(side)) if is_size and side.isdecimal() else side or "(none)"

    return words.label(found.name), shown(found.before), shown(found.after)


def _signed(change: int) -> str:
    return f"{'+' if change > 0 else ''}{format_bytes(change)}"


def _object(change: Change) -> dict[str, Any]:
    return {**asdict(change), "change": change.change}


def _name(change: Change) -> str:
    level, _, moment = change.name.rpartition("_")
    return (
        words.label(change.name)
        if moment == "peak"
        else f"{level} at the end"
        if moment == "end"
        else change.name
    )


def _sizes(change: Change) -> tuple[str, str, str]:
    return format_bytes(change.before), format_bytes(change.after), _signed(change.change)


def _change_table(
    screen: Screen, heading: str, changes: Sequence[Change], *, counts: bool
) -> Table:
    columns = [(heading, "fold"), ("before", "right"), ("after", "right"), ("change", "right")]
    if counts:
        columns.append(("count", "right"))
    table = screen.table(columns, [])
    for change in changes:
        before, after, difference = _sizes(change)
        style = "red" if change.change > 0 else "green" if change.change < 0 else "dim"
        cells = [
            Text(screen.say(_name(change))),
            Text(before),
            Text(after),
            Text(difference, style),
        ]
        if counts:
            known = change.before_count is not None and change.after_count is not None
            cells.append(
                Text(screen.say(f"{change.before_count} → {change.after_count}") if known else "")
            )
        table.add_row(*cells)
    return table
