"""A Report for a ticket: verdict, the one action, the evidence, what was ruled out, and everything raw folded away.

Renders on GitHub and GitLab and reads as plain text in a mail. A paragraph is one line: GitHub shows a line break in a ticket as a
break, and mail programs wrap by themselves. Whatever the input, the text stays under GitHub's limit and says
what was cut. Foreign text can neither format, link, mention nor close anything: suspicious words stand in code spans.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, fields, is_dataclass

from vramdoc.diagnose.verdict import Outcome
from vramdoc.evidence.case import Case
from vramdoc.facts import Fact, Source
from vramdoc.prescribe.prescription import Prescription, VerificationStatus
from vramdoc.printable import one_line, printable
from vramdoc.report import words
from vramdoc.report.contents import Report
from vramdoc.report.segment_map import map_text

BAR = "\\|"
LIMIT = 65_536
"""GitHub refuses a longer body."""
TABLE_ROWS = 12
"""Evidence rows in the open; the others are folded."""
SENTENCE, BLOCK, FOLDED_ROWS = 1_000, 6_000, 200
"""Longest foreign sentence, pasted block and folded table: far above what the tool itself writes."""


@dataclass(frozen=True, slots=True)
class _Section:
    """One part of the ticket. A low ``weight`` is cut first."""

    title: str
    body: str
    weight: int


def render_markdown(report: Report) -> str:
    """Render ``report`` as one Markdown document of fewer than 65,536 characters."""
    sections = [
        _Section("verdict", _verdict(report), 100),
        _Section("action", _action(report), 90),
        _Section("evidence", _evidence(report), 80),
        _Section("other findings", _findings(report), 60),
        _Section("segment map", _map(report), 40),
        _Section("lines of code", _lines_of_code(report), 35),
        _Section("environment and workload", _surroundings(report), 50),
        _Section("other changes", _other_changes(report), 30),
        _Section("raw numbers", _raw(report), 20),
        _Section("error message", _message(report), 25),
    ]
    return _fit([s for s in sections if s.body])


def text(sentence: str, *, limit: int = SENTENCE) -> str:
    """A sentence that may hold foreign words, as Markdown that shows exactly these words."""
    clean = one_line(sentence)
    if len(clean) > limit:
        clean = f"{clean[:limit]} ... ({len(clean) - limit} characters cut)"
    first, *rest = clean.split(" ")
    opening = code(first) if _OPENS_A_BLOCK.fullmatch(first) else _word(first)
    return " ".join((opening, *map(_word, rest)))


def code(content: str) -> str:
    """A code span, whatever backticks the content has."""
    clean = one_line(content)[:SENTENCE]
    runs = [len(run) for run in re.findall("`+", clean)]
    fence = "`" * (max(runs, default=0) + 1)
    pad = " " if clean[:1] in {"`", ""} or clean[-1:] == "`" else ""
    return f"{fence}{pad}{clean}{pad}{fence}"


def block(content: str, language: str = "") -> str:
    """A fenced block that its content cannot close."""
    clean = printable(content).rstrip("\n")
    if len(clean) > BLOCK:
        clean = f"{clean[:BLOCK]}\n... ({len(clean) - BLOCK} characters cut)"
    runs = [len(run) for run in re.findall("`+", clean)]
    fence = "`" * max(3, max(runs, default=0) + 1)
    return f"{fence}{language}\n{clean}\n{fence}"


def table(headings: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    """A table; cells must be Markdown already. A bar needs its backslash in a cell's code span too (GFM, tables)."""
    lines = [headings, ["---" for _ in headings], *rows]
    return "\n".join(f"| {' | '.join(c.replace('|', BAR) for c in line)} |" for line in lines)


_PLAIN_WORD = re.compile(
    r"[(\"']*[^\W_](?:[^\W_]|[-.,:;'%/+=()\"?])*|[-–+=/%?.,:;×]+|[-+]?[0-9][0-9.,]*"
)
"""Words that Markdown on any platform leaves alone. All else (_ * ` < > @ # ! [ ] | ~ \\ & $) gets a code span."""
_OPENS_A_BLOCK = re.compile(r"\d+[.)]|[-+=]+")
"""What makes a list, a rule or a heading of the line that it begins."""
_LINKED = re.compile(r"://|www\.|^\W*(?:GH|gh)-\d|@|\b[0-9a-f]{7,40}\b|:(?:[a-z+]\w*|1234|100):")
"""What GitHub or GitLab would turn into something else by itself: addresses, GH-1, commit hashes, emoji."""
_TAIL = re.compile(r"[.,:;)]*\Z")


_SPAN = re.compile(r"[(\"']*`[^`|\\]+`[.,:;)\"']*")
"""A name that a sentence of ours has put into a code span already. What stands in one can do nothing."""


def _word(word: str) -> str:
    if not word or _SPAN.fullmatch(word):
        return word
    if _PLAIN_WORD.fullmatch(word) and not _LINKED.search(word):
        return word
    cut = len(word) - len(_TAIL.search(word)[0])  # type: ignore[index]  # matches always, maybe empty
    if word.count("(", 0, cut) > word.count(")", 0, cut):
        cut = len(word.rstrip(".,:;"))  # the bracket belongs to the word
    return code(word[:cut]) + word[cut:] if cut else code(word)


def _verdict(report: Report) -> str:
    title = f"## {text(words.outcome(report))}"
    if words.is_bad(report):
        name = words.verdict_id(report)
        title += f" ({f'{code(name)}, ' if name else ''}{words.sureness(report)})"
    notes = report.leading.notes if report.leading is not None else ()
    remarks = "\n".join(f"- {text(note)}" for note in notes)
    return "\n\n".join(part for part in (title, text(report.headline), remarks) if part)


def _action(report: Report) -> str:
    action = words.best_action(report)
    if action is None:
        return (
            "### What to do\n\nNothing that was tried helps; each trial is listed below."
            if report.prescriptions
            else ""
        )
    return "### What to do\n\n" + _change(action, report)


def _change(action: Prescription, report: Report) -> str:
    trial = action.verification
    parts = [f"**{text(action.title)}.** {text(action.change)}"]
    snippet = words.best_snippet(action, report)
    if snippet is not None:
        parts.append(block(snippet[1], re.sub(r"\W", "", snippet[0])))
    status = words.trial_line(trial)
    reason = (
        f": {trial.reason}"
        if trial.reason and trial.status is not VerificationStatus.NOT_TRIED
        else ""
    )
    parts.append(text(f"{status[:1].upper()}{status[1:]}{reason}".rstrip(".") + "."))
    rows = words.trial_rows(trial)
    if rows:
        parts.append(table(["", "before", "after"], [[text(cell) for cell in row] for row in rows]))
    if trial.command and trial.status is not VerificationStatus.VERIFIED:
        parts += ["Verify it with:", block(trial.command, "bash")]
    return "\n\n".join(parts)


def _fact_rows(facts: Sequence[Fact]) -> list[list[str]]:
    return [
        [
            text(words.label(f.name)),
            text(words.fact_value(f)),
            text(f"{f.source}: {f.where}" if f.where else str(f.source)),
        ]
        for f in facts
    ]


def _evidence(report: Report) -> str:
    facts = words.evidence(report)
    if not facts:
        return ""
    shown = table(["", "value", "source"], _fact_rows(facts[:TABLE_ROWS]))
    rest = len(facts) - TABLE_ROWS
    more = f"\n\nand {rest} more under raw numbers." if rest > 0 else ""
    return f"### Evidence\n\n{shown}{more}"


def _findings(report: Report) -> str:
    also = [v for v in report.confirmed if v.id != report.primary]
    lines = [f"- also found: {code(v.id)}: {text(v.summary)}" for v in also]
    out = words.by_outcome(report, Outcome.RULED_OUT)
    if out:
        lines.append("- ruled out: " + ", ".join(code(v.id) for v in out))
    lines += [
        f"- would decide {', '.join(code(name) for name in ids)}: {text(missing)}"
        for missing, ids in words.deciders(report)
    ]
    lines += [f"- missing: {text(sentence)}" for sentence in words.also_missing(report)]
    return "### Ruled out and open\n\n" + "\n".join(lines) if lines else ""


def _map(report: Report) -> str:
    drawn = map_text(report.case, width=78, rows=8)
    return f"### Memory map\n\n{block(drawn, 'text')}" if drawn else ""


def _lines_of_code(report: Report) -> str:
    """Which lines hold memory, keep segments and let it grow; folded, for it is long."""
    parts = []
    for headings, rows in (
        (["held at peak by", "bytes", "blocks"], words.holder_rows(report.case)),
        (
            ["keeps segments", "idle bytes kept", "own bytes", "segments"],
            words.pin_rows(report.case),
        ),
        (["grows", "bytes a step"], words.growth_rows(report.case)),
    ):
        if rows:
            parts.append(table(headings, [[code(row[0]), *map(text, row[1:])] for row in rows]))
    growing = words.growth_line(report.case)
    if growing:
        parts.append(text(growing))
    return _folded("Lines of code", "\n\n".join(parts)) if parts else ""


def _surroundings(report: Report) -> str:
    rows = [
        ("device", words.device_line(report)),
        ("workload", words.workload_line(report)),
        ("ranks", words.rank_line(report.case)),
        (
            "held by",
            "; ".join(f"{line} {held}" for line, held, _ in words.holder_rows(report.case)[:3]),
        ),
        ("target", words.target(report)),
    ]
    lines = [f"- {name}: {code(value)}" for name, value in rows if value]
    lines += [f"- note: {text(note)}" for note in report.notes]
    parts = ["### Where and what", "\n".join(lines)]
    if report.command:
        parts += ["Reproduce with:", block(report.command, "bash")]
    return "\n\n".join(parts)


def _other_changes(report: Report) -> str:
    best = words.best_action(report)
    others = [p for p in report.prescriptions if p is not best]
    changes = [
        f"{_change(p, report)}\n\nRisk: {text(p.risk)} {text(p.limits)}".rstrip() for p in others
    ]
    return _folded(f"Other changes ({len(others)})", "\n\n---\n\n".join(changes)) if others else ""


def _raw(report: Report) -> str:
    facts = list(dict.fromkeys((*report.facts, *(f for v in report.verdicts for f in v.evidence))))
    parts = []
    if facts:
        parts.append(table(["name", "value", "source"], [
            [code(f.name), code(str(f.value)), text(f"{f.source} {f.where}")] for f in facts[:FOLDED_ROWS]
        ]))  # fmt: skip
        if len(facts) > FOLDED_ROWS:
            parts.append(f"and {len(facts) - FOLDED_ROWS} more, cut.")
    rows = [
        *_case_rows(report.case),
        *words.pairs(report.environment, "environment."),
        *words.pairs(report.workload, "workload."),
    ]
    if rows:
        parts.append(
            table(
                ["name", "value"], [[code(name), code(value)] for name, value in rows[:FOLDED_ROWS]]
            )
        )
        if len(rows) > FOLDED_ROWS:
            parts.append(f"and {len(rows) - FOLDED_ROWS} more, cut.")
    if parts:
        used = sorted({f.source for f in facts}, key=list(Source).index)
        parts.append("\n".join(f"- {source}: {words.SOURCES[source]}" for source in used))
    return _folded("Raw numbers and allocator settings", "\n\n".join(parts)) if parts else ""


def _case_rows(case: Case | None) -> list[tuple[str, str]]:
    """Usage, fragmentation and the allocator's settings, under the names of their fields, bytes as integers."""
    if case is None:
        return []
    rows: list[tuple[str, str]] = []
    for name, part in (("usage", case.usage), ("fragmentation", case.fragmentation)):
        rows += _field_rows(part, name)
    snapshot = case.oom_snapshot or case.snapshot
    if snapshot is not None:
        rows += words.pairs(snapshot.allocator_settings, "allocator_settings.")
    return rows


def _field_rows(part: object, prefix: str) -> list[tuple[str, str]]:
    if not is_dataclass(part):
        return (
            [] if part is None or part == "" or isinstance(part, tuple) else [(prefix, str(part))]
        )
    return [
        row
        for f in fields(part)
        for row in _field_rows(getattr(part, f.name), f"{prefix}.{f.name}")
    ]


def _message(report: Report) -> str:
    message = report.case.oom.text if report.case and report.case.oom else ""
    return _folded("The error message", block(message, "text")) if message else ""


def _folded(summary: str, body: str) -> str:
    return f"<details>\n<summary>{summary}</summary>\n\n{body}\n\n</details>"


def _fit(sections: Sequence[_Section]) -> str:
    """Join the sections; what does not fit is cut whole, lightest first, and named."""
    kept: list[_Section] = list(sections)
    cut: list[_Section] = []
    while True:
        parts = [s.body for s in kept]
        if cut:
            names = ", ".join(f"{s.title} ({len(s.body):,} characters)" for s in cut)
            parts.append(f"Cut to stay under GitHub's limit of {LIMIT:,} characters: {names}.")
        document = "\n\n".join(parts) + "\n"
        if len(document) < LIMIT:
            return document
        lightest = min(kept, key=lambda s: s.weight)
        kept.remove(lightest)
        cut.append(lightest)
