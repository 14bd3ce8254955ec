"""The snapshots of many ranks under several allocator configs: a table for the terminal, for a ticket, and for programs.

It ranks nothing: rows come in the order in which they are to be shown. One target under several configs is ``comparison``.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import asdict, dataclass, field
from typing import Any

from rich.table import Table
from rich.text import Text

from vramdoc.facts import Source
from vramdoc.report import to_markdown, words
from vramdoc.report.comparison import (
    DEFAULT,
    as_sentence,
    calls_words,
    config_cell,
    size_words,
)
from vramdoc.report.to_terminal import WIDE, Screen

SWEEP_SCHEMA = 1
NAMED = 3
"""Ranks named in a remark; the others are counted."""


@dataclass(frozen=True, slots=True, kw_only=True)
class SweepRow:
    """One config over all snapshots. Bytes; None where nothing could be replayed, and ``note`` says why."""

    config: str
    files: int
    """Snapshots that were replayed under it."""
    reserved_worst: int | None
    """The highest peak of reserved memory."""
    reserved_median: int | None
    worst_file: str
    """The snapshot that fares worst: it runs out of memory, or reserves most."""
    oom_files: tuple[str, ...]
    """Those that run out of memory."""
    device_alloc: int | None
    """cudaMalloc and map calls, of the worst one."""
    device_free: int | None
    source: Source
    note: str = ""
    is_current: bool = False
    """The config that all were recorded under."""
    is_winner: bool = False

    @property
    def shown_config(self) -> str:
        """The config as people read it."""
        return self.config or DEFAULT


@dataclass(frozen=True, slots=True, kw_only=True)
class SweepFile:
    """One snapshot."""

    name: str
    current: str
    """The config that it was recorded under."""
    exact: bool
    """Whether it replays under that config as recorded."""
    problem: str = ""
    """Why it could not be replayed."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Sweep:
    """All configs, best first, and the snapshots in the order in which they were given."""

    rows: Sequence[SweepRow]
    files: Sequence[SweepFile]
    target_name: str = ""
    sentence: str = ""
    command: str = ""
    notes: Sequence[str] = field(default=())


def render_sweep_json(sweep: Sweep) -> str:
    """``{schema_version, target, sentence, configs: [...], files: [...], command, notes}``."""
    body: dict[str, Any] = {
        "schema_version": SWEEP_SCHEMA,
        "target": sweep.target_name,
        "sentence": sweep.sentence,
        "configs": [
            {**asdict(row), "oom": len(row.oom_files), "source": str(row.source)}
            for row in sweep.rows
        ],
        "files": [asdict(file) for file in sweep.files],
        "command": sweep.command,
        "notes": list(sweep.notes),
    }
    return json.dumps(body, indent=2) + "\n"


def render_sweep(
    sweep: Sweep,
    *,
    width: int = 80,
    colour: bool = False,
    ascii_only: bool = False,
) -> str:
    """A table for a terminal: what the worst rank and the median one reserve; from 110 columns on, which ranks."""
    screen = Screen(width=width, colour=colour, ascii_only=ascii_only)
    title = f"{len(sweep.rows)} CONFIGS × {len(sweep.files)} SNAPSHOTS"
    screen.put(screen.styled((title, "bold")), Text(screen.say(as_sentence(sweep.sentence))), "")
    screen.put(_table(screen, sweep))
    remarks = _remarks(sweep)
    if remarks:
        screen.put("", *(Text(screen.say(line)) for line in remarks))
    if sweep.command:
        screen.put("", screen.table([("", "left"), ("", "fold")], [("Reproduce", sweep.command)]))
    return screen.text()


def _table(screen: Screen, sweep: Sweep) -> Table:
    wide = screen.width >= WIDE
    columns = [("config", "fold"), ("worst peak", "right"), ("median", "right"), ("", "left")]
    columns += [("worst rank", "fold"), ("calls", "right"), ("source", "left")] if wide else []
    table = screen.table(columns, [])
    for row in sweep.rows:
        mark, style = _outcome(row, len(sweep.files))
        cells = [
            config_cell(screen, row.shown_config, is_winner=row.is_winner),
            Text(size_words(row.reserved_worst)),
            Text(size_words(row.reserved_median)),
            Text(screen.say(mark), style),
        ]
        if wide:
            cells += [
                Text(screen.say(row.worst_file)),
                Text(calls_words(row.device_alloc, row.device_free)),
                Text(str(row.source)),
            ]
        table.add_row(*cells)
    return table


def render_sweep_markdown(sweep: Sweep) -> str:
    """A table for a ticket."""
    text, code = to_markdown.text, to_markdown.code
    rows = [
        [
            code(row.shown_config),
            size_words(row.reserved_worst),
            size_words(row.reserved_median),
            text(_outcome(row, len(sweep.files))[0][2:]),
            code(row.worst_file),
            text(calls_words(row.device_alloc, row.device_free)),
            text(str(row.source)),
        ]
        for row in sweep.rows
    ]
    headings = [
        "config",
        "worst peak reserved",
        "median",
        "outcome",
        "worst rank",
        "device calls",
        "source",
    ]
    used = sorted({row.source for row in sweep.rows}, key=list(Source).index)
    lines = [f"- {text(remark)}" for remark in _remarks(sweep)]
    lines += [f"- {source}: {words.SOURCES[source]}" for source in used]
    parts = [
        f"## Allocator configs over {len(sweep.files)} snapshots",
        text(as_sentence(sweep.sentence)),
        to_markdown.table(headings, rows),
        "\n".join(lines),
    ]
    if sweep.command:
        parts.append(to_markdown.block(sweep.command, "bash"))
    return "\n\n".join(parts) + "\n"


def _remarks(sweep: Sweep) -> list[str]:
    """The sweep's own notes, who stands out, then each remark once with the configs it is about."""
    about: dict[str, list[str]] = {}
    for row in sweep.rows:
        if row.note:
            about.setdefault(row.note, []).append(row.shown_config)
    return [
        *_worst(sweep),
        *sweep.notes,
        *(f"{', '.join(configs)}: {note}" for note, configs in about.items()),
    ]


def _worst(sweep: Sweep) -> list[str]:
    """Which rank is the worst, and which run out of memory, each set once with the configs it is about."""
    by_file: dict[str, int] = {}
    for row in sweep.rows:
        by_file[row.worst_file] = by_file.get(row.worst_file, 0) + 1
    name, count = max(by_file.items(), key=lambda item: item[1])
    said = [f"worst rank: {name}, under {count} of {len(sweep.rows)} configs"]
    failing: dict[tuple[str, ...], list[str]] = {}
    for row in sweep.rows:
        if row.oom_files:
            failing.setdefault(row.oom_files, []).append(row.shown_config)
    for files, configs in failing.items():
        which = "every config" if len(configs) == len(sweep.rows) else ", ".join(configs)
        said.append(f"out of memory under {which}: {first_few(files)}")
    return said


def first_few(names: Sequence[str]) -> str:
    """Some names, and how many more there are."""
    more = f" and {len(names) - NAMED} more" if len(names) > NAMED else ""
    return f"{', '.join(names[:NAMED])}{more}"


def _outcome(row: SweepRow, files: int) -> tuple[str, str]:
    if row.oom_files:
        return f"✗ {len(row.oom_files)} of {row.files} out of memory", "red"
    if row.reserved_worst is None:
        return "? not replayed", "yellow"
    if row.files < files:
        return f"✓ {row.files} fit, {files - row.files} unknown", "yellow"
    return "✓ all fit", "green"
