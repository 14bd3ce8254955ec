"""One workload under several allocator configs: a ranked table for the terminal, for a ticket, and for programs.

It ranks nothing: rows come in the order in which they are to be shown. ``plots`` draws the same rows.
"""

from __future__ import annotations

import json
import re
import shlex
from collections.abc import Sequence
from dataclasses import asdict, dataclass, field
from typing import Any

from rich.table import Table
from rich.text import Text

from vramdoc.facts import Source
from vramdoc.report import to_markdown, words
from vramdoc.report.to_terminal import WIDE, Screen
from vramdoc.units import format_bytes

COMPARISON_SCHEMA = 1
FORMATS = ("terminal", "json", "markdown")
DEFAULT = "(default)"
"""How the empty config string is shown."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ConfigRow:
    """What one config did. Bytes and calls are None where nothing was measured, and ``note`` says why."""

    config: str
    """The PYTORCH_CUDA_ALLOC_CONF string; empty for the default."""
    reserved_peak: int | None
    active_peak: int | None
    oom: bool
    device_alloc: int | None
    """cudaMalloc and map calls."""
    device_free: int | None
    source: Source
    note: str = ""
    """Why it failed or could not be tried, or what it costs."""
    external_fragmentation: int | None = None
    """Inactive bytes at peak reserved that ``empty_cache`` could not have returned."""
    internal_fragmentation: int | None = None
    """Bytes of live blocks beyond what was asked for, at the same moment."""
    headroom: int | None = None
    """What the device could still have given at the peak."""
    retries: int | None = None
    """Times everything cached was flushed because the device was full."""
    is_current: bool = False
    """The config that the recording ran under."""
    is_winner: bool = False
    rerun_exit: str = ""
    """How a rerun for real ended; empty where none was asked for."""
    rerun_reserved_peak: int | None = None

    @property
    def shown_config(self) -> str:
        """The config as people read it."""
        return self.config or DEFAULT


@dataclass(frozen=True, slots=True, kw_only=True)
class Comparison:
    """All rows, best first, and what they have in common."""

    rows: Sequence[ConfigRow]
    target_name: str = ""
    sentence: str = ""
    """The winner, or that the differences do not matter."""
    workload: str = ""
    device: str = ""
    command: str = ""
    notes: Sequence[str] = field(default=())

    @property
    def baseline(self) -> ConfigRow | None:
        """The config that was recorded, else the default one."""
        current = next((row for row in self.rows if row.is_current), None)
        return current or next((row for row in self.rows if not row.config), None)


def render_comparison_json(comparison: Comparison) -> str:
    """The contract of design section 5: ``configs: [{config, reserved_peak, active_peak, oom, device_alloc, device_free, source}]``."""
    rows = [{**asdict(row), "source": str(row.source)} for row in comparison.rows]
    body: dict[str, Any] = {
        "schema_version": COMPARISON_SCHEMA,
        "target": comparison.target_name,
        "sentence": comparison.sentence,
        "configs": rows,
        "workload": comparison.workload,
        "device": comparison.device,
        "command": comparison.command,
        "notes": list(comparison.notes),
    }
    return json.dumps(body, indent=2) + "\n"


def render_comparison(
    comparison: Comparison,
    *,
    width: int = 80,
    colour: bool = False,
    ascii_only: bool = False,
) -> str:
    """A table for a terminal: at 80 columns config, peak reserved and outcome; from 110 on all that was measured."""
    screen = Screen(width=width, colour=colour, ascii_only=ascii_only)
    title = f"{len(comparison.rows)} CONFIGS  "
    screen.put(screen.styled((title, "bold"), (comparison.target_name, "dim")))
    if comparison.sentence:
        screen.put(Text(screen.say(as_sentence(comparison.sentence))))
    setting = _setting(comparison)
    if setting:
        screen.put("")
        screen.put_verbatim(setting)
    screen.put(
        "", _wide_table(screen, comparison) if width >= WIDE else _narrow_table(screen, comparison)
    )
    remarks = _remarks(comparison, reruns=width < WIDE)
    if remarks:
        screen.put("", *(Text(screen.say(line)) for line in remarks))
    lines = [
        ("Device", comparison.device),
        ("Workload", comparison.workload),
        ("Reproduce", comparison.command),
    ]
    kept = [line for line in lines if line[1]]
    if kept:
        screen.put("", screen.table([("", "left"), ("", "fold")], kept))
    return screen.text()


def _narrow_table(screen: Screen, comparison: Comparison) -> Table:
    table = screen.table(
        [("config", "fold"), ("peak reserved", "right"), ("change", "right"), ("", "left")], []
    )
    for row in comparison.rows:
        table.add_row(*_first_cells(screen, row, comparison), _mark(screen, row))
    return table


def _wide_table(screen: Screen, comparison: Comparison) -> Table:
    names = ("peak reserved", "change", "peak active", "external", "internal", "headroom", "calls")
    reruns = any(map(_rerun, comparison.rows))
    columns = [("config", "fold"), *((name, "right") for name in names), ("", "left")]
    columns += [("rerun", "left")] if reruns else []
    table = screen.table([*columns, ("source", "left")], [])
    for row in comparison.rows:
        measured = (
            row.active_peak,
            row.external_fragmentation,
            row.internal_fragmentation,
            row.headroom,
        )
        table.add_row(
            *_first_cells(screen, row, comparison),
            *(Text(size_words(value)) for value in measured),
            Text(calls_words(row.device_alloc, row.device_free)),
            _mark(screen, row),
            *([Text(screen.say(_rerun(row)))] if reruns else []),
            Text(str(row.source)),
        )
    return table


def _first_cells(screen: Screen, row: ConfigRow, comparison: Comparison) -> list[Text]:
    name = config_cell(screen, row.shown_config, is_winner=row.is_winner)
    return [name, Text(size_words(row.reserved_peak)), Text(_saving(row, comparison.baseline))]


def config_cell(screen: Screen, shown_config: str, *, is_winner: bool) -> Text:
    """A config in a column that gives way: one too wide for it is broken after a comma."""
    room = screen.width // 2 - 5 if screen.width < WIDE else screen.width // 3 - 8
    lines = [""]
    for part in screen.say(shown_config).replace(",", ",\n").split("\n"):
        if lines[-1] and len(lines[-1]) + len(part) > room:
            lines.append("")
        lines[-1] += part
    return Text("\n".join(lines), "bold" if is_winner else "")


def _mark(screen: Screen, row: ConfigRow) -> Text:
    mark, style = _outcome(row)
    return Text(screen.say(mark), style)


def as_sentence(clause: str) -> str:
    """A clause of the judgement as a sentence of its own; a config at its beginning keeps its spelling."""
    return f"{_opened(clause)}."


def _opened(clause: str) -> str:
    is_config = re.match(r"\w+:\S", clause)
    return clause if is_config else clause[:1].upper() + clause[1:]


def _setting(comparison: Comparison) -> str:
    """The winner, ready to paste; empty where the recorded config is as good."""
    winner = next((row for row in comparison.rows if row.is_winner and not row.is_current), None)
    if winner is None or not winner.config or " + " in winner.config:
        return ""
    return f"export PYTORCH_CUDA_ALLOC_CONF={shlex.quote(winner.config)}"


def _remarks(comparison: Comparison, *, reruns: bool) -> list[str]:
    """The comparison's own notes, then each remark once with the configs it is about."""
    about: dict[str, list[str]] = {}
    for row in comparison.rows:
        if row.note:
            about.setdefault(row.note, []).append(row.shown_config)
        if reruns and _rerun(row):
            about.setdefault(f"rerun for real: {_rerun(row)}", []).append(row.shown_config)
    return [
        *map(_opened, comparison.notes),
        *(f"{', '.join(configs)}: {note}" for note, configs in about.items()),
    ]


def render_comparison_markdown(comparison: Comparison) -> str:
    """A table for a ticket."""
    text, code = to_markdown.text, to_markdown.code
    rows = [
        [
            code(row.shown_config),
            size_words(row.reserved_peak),
            text(_saving(row, comparison.baseline)),
            size_words(row.active_peak),
            text(
                ", ".join(
                    filter(None, (_outcome(row)[0][2:], _rerun(row) and f"rerun: {_rerun(row)}"))
                )
            ),
            text(calls_words(row.device_alloc, row.device_free)),
            text(str(row.source)),
        ]
        for row in comparison.rows
    ]
    headings = [
        "config",
        "peak reserved",
        "change",
        "peak active",
        "outcome",
        "device calls",
        "source",
    ]
    parts = [
        f"## Allocator configs: {code(comparison.target_name)}"
        if comparison.target_name
        else "## Allocator configs"
    ]
    if comparison.sentence:
        parts.append(text(as_sentence(comparison.sentence)))
    setting = _setting(comparison)
    if setting:
        parts.append(to_markdown.block(setting, "bash"))
    parts.append(to_markdown.table(headings, rows))
    named = (("device", comparison.device), ("workload", comparison.workload))
    used = sorted({row.source for row in comparison.rows}, key=list(Source).index)
    lines = [f"- {name}: {code(value)}" for name, value in named if value]
    lines += [f"- {text(remark)}" for remark in _remarks(comparison, reruns=False)]
    lines += [f"- {source}: {words.SOURCES[source]}" for source in used]
    parts.append("\n".join(lines))
    if comparison.command:
        parts.append(to_markdown.block(comparison.command, "bash"))
    return "\n\n".join(parts) + "\n"


def _outcome(row: ConfigRow) -> tuple[str, str]:
    if row.oom:
        return "✗ out of memory", "red"
    if row.reserved_peak is None:
        return "? not replayed", "yellow"
    return "✓ fits", "green"


def _rerun(row: ConfigRow) -> str:
    if not row.rerun_exit:
        return ""
    if row.rerun_reserved_peak is None:
        return row.rerun_exit
    same = (
        "the same"
        if row.rerun_reserved_peak == row.reserved_peak
        else format_bytes(row.rerun_reserved_peak)
    )
    return f"{row.rerun_exit}, {same}"


def size_words(value: int | None) -> str:
    """A size, or that it is not known."""
    return "?" if value is None else format_bytes(value)


def _saving(row: ConfigRow, baseline: ConfigRow | None) -> str:
    if (
        baseline is None
        or baseline.reserved_peak is None
        or row.reserved_peak is None
        or row is baseline
    ):
        return ""
    change = row.reserved_peak - baseline.reserved_peak
    return f"{'+' if change > 0 else ''}{format_bytes(change)}"


def calls_words(device_alloc: int | None, device_free: int | None) -> str:
    """Driver calls as "taken + given back"; empty where they are not known."""
    if device_alloc is None or device_free is None:
        return ""
    return f"{device_alloc:,} + {device_free:,}"
