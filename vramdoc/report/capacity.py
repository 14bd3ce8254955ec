"""The capacity grid for a terminal and for programs: contexts by concurrent sessions, what was run and what was computed.

It computes nothing; the statement that a team publishes is ``capacity.statement``'s.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import asdict
from pathlib import PurePath
from typing import Any

from rich.text import Text

from vramdoc.capacity.border import Border
from vramdoc.capacity.comparison import StatementCheck
from vramdoc.capacity.plan import CapacityPlan, Cell
from vramdoc.facts import Source
from vramdoc.report import words
from vramdoc.report.to_terminal import Screen
from vramdoc.units import format_bytes

CAPACITY_SCHEMA = 1
RUN = (Source.MEASURED, Source.VIRTUAL_GPU)
"""Sources of a cell that really ran."""


def capacity_object(plan: CapacityPlan, statement: dict[str, Any]) -> dict[str, Any]:
    """The contract of design section 5: ``kv_bytes_per_token``, ``grid``, ``statement``; keys are only ever added."""
    return {
        "schema_version": CAPACITY_SCHEMA,
        "kv_bytes_per_token": plan.kv_bytes_per_token,
        "weights": plan.weight_bytes,
        "grid": [_cell(cell) for cell in plan.cells],
        "borders": [asdict(border) for border in plan.borders],
        "budgets": [asdict(budget) for budget in plan.budgets],
        "ms_per_token": {str(context): time for context, time in plan.ms_per_token.items()},
        "notes": list(plan.notes),
        "statement": statement,
    }


def render_capacity_json(plan: CapacityPlan, statement: dict[str, Any]) -> str:
    """One JSON object."""
    return json.dumps(capacity_object(plan, statement), indent=2) + "\n"


def render_capacity(
    plan: CapacityPlan, *, width: int = 80, colour: bool = False, ascii_only: bool = False
) -> str:
    """The grid, where the border runs and what it was measured by; then where the bytes go."""
    screen = Screen(width=width, colour=colour, ascii_only=ascii_only)
    model = PurePath(plan.request.target).name
    screen.put(
        screen.styled(
            ("CAPACITY  ", "bold"), (f"{model} on {words.device_name(plan.device)}", "dim")
        ),
        Text(
            screen.say(
                f"Weights take {format_bytes(plan.weight_bytes)}, a token {format_bytes(plan.kv_bytes_per_token)} "
                f"of a {plan.request.cache} KV cache."
            )
        ),
        "",
        _grid(screen, plan),
        Text(screen.say("* really run; the others are computed"), "dim"),
    )
    for border in plan.borders:
        screen.put(Text(screen.say(_border(border))))
    if plan.budgets:
        screen.put("", _budget(screen, plan))
    lines = [("" if at else "Notes", note) for at, note in enumerate(plan.notes)]
    lines.append(("Workload", plan.workload_line))
    screen.put("", screen.table([("", "left"), ("", "fold")], lines))
    return screen.text()


def _border(border: Border) -> str:
    """How many sessions of one context ran, and what happened to one more."""
    more = "at least " if border.open_ended else ""
    spare = f"{format_bytes(border.headroom)} to spare" if border.headroom else "nothing to spare"
    run = "session runs" if border.sessions == 1 else "sessions run"
    said = f"At {border.context:,} tokens {more}{border.sessions} {run}, with {spare}"
    if not border.short_by:
        return f"{said}."
    return (
        f"{said}; {border.sessions + 1} run out of memory, {format_bytes(border.short_by)} short."
    )


def _grid(screen: Screen, plan: CapacityPlan) -> Any:
    contexts = sorted({cell.context for cell in plan.cells})
    sessions = sorted({cell.sessions for cell in plan.cells})
    cells = {(cell.context, cell.sessions): cell for cell in plan.cells}
    columns = [
        ("context", "right"),
        *((f"{count} sessions" if count > 1 else "1 session", "fold") for count in sessions),
    ]
    table = screen.table(columns, [])
    for context in contexts:
        row = [Text(f"{context:,}")]
        for count in sessions:
            said, style = _words(cells[context, count])
            row.append(Text(screen.say(said), style))
        table.add_row(*row)
    return table


def _words(cell: Cell) -> tuple[str, str]:
    mark = "*" if cell.source in RUN else ""
    if cell.fits:
        return f"fits{mark}", "green"
    helped = "*" if cell.alternative_source in RUN else ""
    if cell.with_config:
        return f"only with {cell.with_config}{helped}", "yellow"
    if cell.with_cache:
        return f"only with --cache {cell.with_cache}{helped}", "yellow"
    return f"short by {format_bytes(cell.short_by)}{mark}", "red"


def _budget(screen: Screen, plan: CapacityPlan) -> Any:
    """Where the device's bytes go, a column a context."""
    rows = [
        ("outside PyTorch", "outside"),
        ("weights", "weights"),
        ("workspaces", "workspaces"),
        ("activations at the peak", "activations"),
        ("each session", "per_session"),
    ]
    columns = [
        ("BUDGET", "left"),
        *((f"{budget.context:,} tokens", "right") for budget in plan.budgets),
    ]
    return screen.table(
        columns,
        [[name, *(format_bytes(getattr(b, field)) for b in plan.budgets)] for name, field in rows],
    )


def _cell(cell: Cell) -> dict[str, Any]:
    return {
        "context": cell.context,
        "sessions": cell.sessions,
        "fits": cell.fits,
        "source": str(cell.source),
        "run": cell.source in RUN,
        "short_by": cell.short_by,
        "with_config": cell.with_config,
        "with_cache": cell.with_cache,
        "alternative_source": str(cell.alternative_source) if cell.alternative_source else None,
    }


def check_object(found: StatementCheck) -> dict[str, Any]:
    """What became of a statement, as plain values."""
    return {
        "schema_version": CAPACITY_SCHEMA,
        "holds": found.holds,
        "conditions": [asdict(item) for item in found.conditions],
        "results": [asdict(item) for item in found.results],
        "credit": found.credit,
    }


CHECKED = {
    True: ("✓ THE STATEMENT HOLDS", "bold green"),
    False: ("✗ IT NO LONGER HOLDS", "bold red"),
    None: ("? CANNOT TELL: the search ended before the number that was stated", "bold yellow"),
}


def render_check(
    found: StatementCheck, *, width: int = 80, colour: bool = False, ascii_only: bool = False
) -> str:
    """Whether a statement still holds, every difference, and what may be credited with it."""
    screen = Screen(width=width, colour=colour, ascii_only=ascii_only)
    mark, style = CHECKED[found.holds]
    screen.put(screen.styled((mark, style)), Text(screen.say(found.credit)))
    for heading, items in (("WHAT CHANGED", found.conditions), ("RESULT", found.results)):
        if items:
            rows = [(item.what, str(item.before), str(item.after)) for item in items]
            screen.put(
                "", screen.table([(heading, "left"), ("before", "fold"), ("after", "fold")], rows)
            )
    return screen.text()


SERVED = (
    ("arrived", "arrived", False),
    ("admitted", "admitted", False),
    ("waited", "waited before they were admitted", False),
    ("turned_away", "turned away", False),
    ("finished", "finished", False),
    ("cancelled", "cancelled", False),
    ("abandoned", "abandoned", False),
    ("most_open", "most open at once", False),
    ("active_peak", "peak active", True),
    ("reserved_peak", "peak reserved", True),
    ("returned_bytes", "returned by cleanup", True),
    ("abandoned_kept_bytes", "most that abandoned sessions kept", True),
    ("still_allocated_bytes", "still allocated at the end", True),
    ("input_tokens", "input tokens", False),
    ("repeated_prefix_tokens", "of them a repeated prefix", False),
)


def render_served(
    served: Mapping[str, Any], *, width: int = 80, colour: bool = False, ascii_only: bool = False
) -> str:
    """What a service saw: admission, peaks, what cleanup returned."""
    screen = Screen(width=width, colour=colour, ascii_only=ascii_only)
    screen.put(screen.styled(("SERVE  ", "bold"), (str(served["device"]), "dim")), "")
    rows = [
        (label, format_bytes(served[key]) if is_bytes else f"{served[key]:,}")
        for key, label, is_bytes in SERVED
        if served.get(key) is not None
    ]
    screen.put(screen.table([("", "left"), ("", "right")], rows))
    if served["exit"] != "success":
        ending = "ran out of memory" if served["exit"] == "oom" else f"ended with {served['exit']}"
        said = f"It {ending}, and the figures stop there. With fewer --sessions more of them wait."
        screen.put("", Text(screen.say(said), "red"))
    screen.put(
        "", screen.table([("", "left"), ("", "fold")], [("Workload", str(served["workload"]))])
    )
    return screen.text()
