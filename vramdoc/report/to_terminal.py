"""A Report for a person at a terminal: a first screen of about 25 lines that answers, and with ``verbose`` everything else.

Pure: width, colour and character set are arguments; nothing is read from the environment. Colour means something:
red a confirmed error, yellow a warning or an open question, green health or a verified change, dim what was ruled out.
"""

from __future__ import annotations

import io
from collections.abc import Iterable, Sequence

from rich.console import Console, RenderableType
from rich.padding import Padding
from rich.table import Table
from rich.text import Text

from vramdoc.diagnose.verdict import Outcome, Severity
from vramdoc.facts import Fact
from vramdoc.prescribe.prescription import Prescription, VerificationStatus
from vramdoc.printable import ascii_form, printable
from vramdoc.report import words
from vramdoc.report.contents import HEALTHY, UNDECIDED, Report
from vramdoc.report.segment_map import drawn_facts, map_lines

REMARKS = 4
"""Remarks of the leading verdict on the first screen; the others come with -v."""
EVIDENCE_ROWS, ROWS_ALONE = 4, 6
"""Rows of evidence on the first screen, where there is an action and where there is none: with all else about 25 lines."""
LONGEST_NUMBER = 24
"""Characters of the longest value that is a number; anything longer is text and may fold."""
WIDE = 110
"""From this width on, tables also say where to look a figure up."""

_MARKS = {
    Outcome.CONFIRMED: ("✗", "red"),
    Outcome.UNDECIDED: ("?", "yellow"),
    Outcome.RULED_OUT: ("–", "dim"),
}
_TRIAL_MARKS = {
    VerificationStatus.VERIFIED: ("✓", "green"),
    VerificationStatus.REFUTED: ("✗", "red"),
    VerificationStatus.NOT_TRIED: ("?", "yellow"),
}


def render_terminal(
    report: Report,
    *,
    width: int = 80,
    colour: bool = False,
    ascii_only: bool = False,
    verbose: bool = False,
    quiet: bool = False,
) -> str:
    """Render ``report`` for a terminal of ``width`` columns; with ``quiet`` only the verdict and its fix.

    Only what is to be pasted may be longer than ``width``: a command broken by us could not be pasted.
    """
    screen = Screen(width=width, colour=colour, ascii_only=ascii_only)
    _headline(screen, report)
    if quiet:
        _quiet_fix(screen, report)
        return screen.text()
    if not verbose:
        _remarks(screen, report)
    _action(screen, report, verbose=verbose)
    _evidence(screen, report, verbose=verbose)
    if verbose:
        _lines_of_code(screen, report)
        _all_verdicts(screen, report)
        _other_prescriptions(screen, report)
    _closing(screen, report, verbose=verbose)
    if verbose or _draws_map(report):
        _segment_map(screen, report, rows=12 if verbose else 1)
    return screen.text()


class Screen:
    """What has been written so far, and how wide, coloured and plain it may be."""

    def __init__(self, *, width: int, colour: bool, ascii_only: bool) -> None:
        self.width = width
        self.ascii_only = ascii_only
        self._colour = colour
        self._out = io.StringIO()
        self._console = Console(
            file=self._out, width=width, force_terminal=colour, legacy_windows=False,
            color_system="standard" if colour else None, highlight=False, emoji=False,
            markup=False, _environ={},
        )  # fmt: skip

    def say(self, text: str) -> str:
        """``text`` on one line, with nothing in it that could steer the terminal, in the terminal's own characters."""
        clean = " ".join(printable(text).splitlines())
        return ascii_form(clean) if self.ascii_only else clean

    def styled(self, *parts: tuple[str, str]) -> Text:
        """``(text, style)`` pieces as one line of text."""
        return Text.assemble(*((self.say(text), style) for text, style in parts))

    def put(self, *blocks: RenderableType, indent: int = 0) -> None:
        """Write blocks, one below the other."""
        for block in blocks:
            self._console.print(Padding(block, (0, 0, 0, indent)) if indent else block)

    def put_item(self, *parts: tuple[str, str]) -> None:
        """Write one item of a list, its further lines under its first word."""
        item = Table.grid(padding=(0, 1, 0, 0))
        item.add_row(Text("-", "dim"), self.styled(*parts))
        self.put(item)

    def put_verbatim(self, text: str) -> None:
        """Write lines that are to be pasted: never broken, never indented (Python would not take them)."""
        for line in text.rstrip("\n").split("\n"):
            shown = self.say(line.replace("\t", "    "))
            self._console.print(Text(shown, "bold"), soft_wrap=True)

    def table(self, columns: Sequence[tuple[str, str]], rows: Iterable[Sequence[str]]) -> Table:
        """A borderless table; a column is ``(heading, "left" | "right" | "fold")``, fold being the one that gives way."""
        headed = any(heading for heading, _ in columns)
        table = Table(
            box=None, show_header=headed,
            padding=(0, 2, 0, 0), pad_edge=False, show_edge=False, header_style="dim",
        )  # fmt: skip
        for heading, kind in columns:
            table.add_column(
                self.say(heading),
                justify="right" if kind == "right" else "left",
                overflow="fold",
                no_wrap=kind != "fold" and self.width >= 60,
            )
        for row in rows:
            table.add_row(*(Text(self.say(cell)) for cell in row))
        return table

    def text(self) -> str:
        """Everything written so far, without blanks at line ends where no colour needs them."""
        lines = self._out.getvalue().split("\n")
        if not self._colour:
            lines = [line.rstrip() for line in lines]
        return "\n".join(lines).rstrip("\n") + "\n"


def _headline(screen: Screen, report: Report) -> None:
    if report.primary == HEALTHY:
        mark, style = "✓", "green"
    elif report.primary == UNDECIDED:
        mark, style = "?", "yellow"
    else:
        grave = any(v.severity is Severity.ERROR for v in report.confirmed)
        mark, style = ("✗", "red") if grave else ("!", "yellow")
    about = (words.target(report), words.sureness(report))
    title = screen.styled(
        (f"{mark} {words.outcome(report).upper()}", f"bold {style}"),
        (f"  {', '.join(filter(None, about))}", "dim"),
    )
    screen.put(title, Text(screen.say(report.headline)))


def _remarks(screen: Screen, report: Report) -> None:
    """What the verdict adds; of a text it is half of the answer, as there are no figures of ours beside it."""
    if report.target_kind != "crash-text" or report.leading is None:
        return
    notes = report.leading.notes
    for sentence in notes[:REMARKS]:
        screen.put_item((sentence, ""))
    if len(notes) > REMARKS:
        screen.put(screen.styled((f"  and {len(notes) - REMARKS} more with -v", "dim")))


def _quiet_fix(screen: Screen, report: Report) -> None:
    action = words.best_action(report)
    if action is None:
        return
    mark, style = _TRIAL_MARKS[action.verification.status]
    screen.put(
        screen.styled(
            (f"{mark} {action.change}", style),
            (f" ({words.trial_line(action.verification)})", "dim"),
        )
    )
    snippet = words.best_snippet(action, report)
    if snippet is not None:
        screen.put_verbatim(snippet[1])


def _action(screen: Screen, report: Report, *, verbose: bool) -> None:
    action = words.best_action(report)
    if action is not None:
        screen.put("")
        _prescription(screen, report, action, lead="DO THIS  ", verbose=verbose)
    elif report.primary == UNDECIDED:
        _deciders(screen, report)
    elif report.prescriptions:
        screen.put(
            "", screen.styled(("Nothing that was tried helps: see -v for each trial.", "yellow"))
        )


def _deciders(screen: Screen, report: Report) -> None:
    """What to fetch, where that is all that can be answered."""
    found = words.deciders(report)
    if found:
        screen.put("", screen.styled(("WHAT WOULD DECIDE IT", "bold")))
    for missing, ids in found:
        screen.put_item((missing, "yellow"), (f" ({_some(ids)})", "dim"))


def _some(ids: Sequence[str]) -> str:
    """All of a few; of many the first two, and how many more."""
    return ", ".join(ids) if len(ids) < 4 else f"{', '.join(ids[:2])} and {len(ids) - 2} more"


def _prescription(
    screen: Screen, report: Report, action: Prescription, *, lead: str = "", verbose: bool = False
) -> None:
    trial = action.verification
    mark, style = _TRIAL_MARKS[trial.status]
    screen.put(screen.styled((lead, "bold"), (action.title, "bold")))
    screen.put(Text(screen.say(action.change)), indent=2)
    snippet = words.best_snippet(action, report)
    if snippet is not None:
        screen.put_verbatim(snippet[1])
    is_open = bool(trial.command) and trial.status is not VerificationStatus.VERIFIED
    said = trial.reason and trial.status is not VerificationStatus.NOT_TRIED
    parts = [(f"{mark} {words.trial_line(trial)}", style)]
    parts += [
        (f": {trial.reason}" if said else "", ""),
        ("; verify it with" if is_open else "", "dim"),
    ]
    screen.put(screen.styled(*parts), indent=2)
    if is_open:
        screen.put_verbatim(trial.command)
    rows = words.trial_rows(trial)
    changed = [row for row in rows if row[1] != row[2]] or rows
    if changed and (verbose or not said):
        effects = [f"{what}: {before} → {after}" for what, before, after in changed]
        screen.put(Text(screen.say(" · ".join(effects))), indent=2)
    if trial.command and verbose and not is_open:
        screen.put(screen.styled(("verify it with", "dim")), indent=2)
        screen.put_verbatim(trial.command)
    if verbose:
        for name, sentence in (("risk", action.risk), ("limits", action.limits)):
            if sentence:
                screen.put(screen.styled((f"{name}: {sentence}", "dim")), indent=2)


def _evidence(screen: Screen, report: Report, *, verbose: bool) -> None:
    """The figures that the answer rests on."""
    facts = words.evidence(report)
    shown = facts if verbose else _first_figures(report)
    if shown:
        screen.put("", _fact_table(screen, shown, heading="EVIDENCE"))


def _first_figures(report: Report) -> list[Fact]:
    """The leading figures: none of zero bytes, and none that the map says."""
    said = drawn_facts(report.case) if _draws_map(report) else frozenset()
    telling = [
        fact
        for fact in words.evidence(report)
        if fact.name not in said and (fact.unit, fact.value) != ("bytes", 0)
    ]
    return telling[: EVIDENCE_ROWS if report.prescriptions else ROWS_ALONE]


def _draws_map(report: Report) -> bool:
    """Whether the first screen has room for the map: where holes are the answer. Elsewhere the figures say as much."""
    return report.primary == "fragmentation"


def _fact_table(screen: Screen, facts: Sequence[Fact], *, heading: str) -> Table:
    wide = screen.width >= WIDE
    values = [words.fact_value(fact) for fact in facts]
    long = any(len(value) > LONGEST_NUMBER for value in values)
    columns = [(heading, "fold"), ("value", "fold" if long else "right"), ("source", "left")]
    if wide:
        columns.append(("where", "fold"))
    table = screen.table(columns, [])
    for fact, value in zip(facts, values, strict=True):
        cells = [words.label(fact.name), value, str(fact.source)]
        if wide:
            cells.append(fact.where)
        table.add_row(*(Text(screen.say(cell)) for cell in cells))
    return table


def _segment_map(screen: Screen, report: Report, *, rows: int) -> None:
    lines = map_lines(report.case, width=screen.width, ascii_only=screen.ascii_only, rows=rows)
    if lines:
        screen.put("")
        for line in lines:
            screen.put(Text.assemble(*line))


def _lines_of_code(screen: Screen, report: Report) -> None:
    """Which lines hold memory, keep segments and let it grow."""
    holders, pinning = words.holder_rows(report.case), words.pin_rows(report.case)
    if holders:
        columns = [("HELD AT PEAK BY", "fold"), ("bytes", "right"), ("blocks", "right")]
        screen.put("", screen.table(columns, holders))
    if pinning:
        columns = [
            ("KEEPS SEGMENTS", "fold"),
            ("idle bytes kept", "right"),
            ("own bytes", "right"),
            ("segments", "right"),
        ]
        screen.put("", screen.table(columns, pinning))
    growing = words.growth_line(report.case)
    if growing:
        screen.put("", Text(screen.say(growing)))
        rising = words.growth_rows(report.case)
        if rising:
            columns = [("GROWS", "fold"), ("bytes a step", "right")]
            screen.put(screen.table(columns, rising))


def _all_verdicts(screen: Screen, report: Report) -> None:
    """Every verdict; of what was ruled out the reason is enough, and the primary one's evidence stands above."""
    for verdict in report.verdicts:
        mark, style = _MARKS[verdict.outcome]
        outcome = verdict.outcome.value.replace("_", " ")
        screen.put(
            "",
            screen.styled(
                (f"{mark} {verdict.id}", f"bold {style}"),
                (f"  {outcome}, {verdict.severity}, {verdict.confidence} confidence", "dim"),
            ),
        )
        screen.put(Text(screen.say(verdict.summary)), indent=2)
        if verdict.outcome is Outcome.RULED_OUT:
            continue
        if verdict.evidence and verdict.id != report.primary:
            screen.put(_fact_table(screen, verdict.evidence, heading="evidence"), indent=2)
        for sentence in (*verdict.notes, *(f"would be decided by {m}" for m in verdict.missing)):
            screen.put(screen.styled((sentence, "dim")), indent=2)


def _other_prescriptions(screen: Screen, report: Report) -> None:
    best = words.best_action(report)
    for prescription in report.prescriptions:
        if prescription is not best:
            screen.put("")
            _prescription(screen, report, prescription, verbose=True)


def _closing(screen: Screen, report: Report, *, verbose: bool) -> None:
    room = screen.width - 12
    also = [v for v in report.confirmed if v.id != report.primary]
    workload, said = words.workload_line(report), f"{report.target_name} {report.command}"
    if verbose:
        found = [
            ("Held by", _holders(report, room=None)),
            ("Kept by", words.kept_by(report)),
            ("Ranks", words.rank_line(report.case)),
            ("Missing", "; ".join(words.also_missing(report))),
            ("Notes", " ".join(report.notes)),
            ("Device", words.device_line(report)),
            ("Workload", workload),
            ("Recording", report.recording),
            ("Reproduce", report.command),
            *words.pairs(report.environment),
        ]
    else:
        ran = (workload if workload not in said else "", words.device_line(report))
        found = [
            ("Also found", "; ".join(f"{v.id}: {v.summary}" for v in also)),
            ("Ruled out", _ids(report, Outcome.RULED_OUT, room=room)),
            ("Undecided", _ids(report, Outcome.UNDECIDED, room=None) if report.primary != UNDECIDED else ""),
            ("Held by", _holders(report, room=room)),
            ("Kept by", words.kept_by(report)),
            ("Ranks", words.rank_line(report.case)),
            ("Missing", "; ".join(words.also_missing(report))),
            ("Ran" if ran[0] else "Device", " · ".join(filter(None, ran))),
            ("Reproduce", report.command),
            ("More", _more(report)),
        ]  # fmt: skip
    kept = [row for row in found if row[1]]
    if kept:
        table = screen.table([("", "left"), ("", "fold")], kept)
        table.columns[0].style = "dim"
        screen.put("", table)


def _more(report: Report) -> str:
    """Where to read on."""
    rest = len(words.evidence(report)) - len(_first_figures(report))
    figures = f" ({rest} more figures)" if rest > 1 else ""
    explained = f" · vramdoc explain {report.primary}" if words.is_bad(report) else ""
    return f"-v{figures}{explained}"


def _holders(report: Report, *, room: int | None) -> str:
    """The lines that hold most at the peak: the first, and of the next two what fits into ``room`` characters."""
    held = [f"{line} {size}" for line, size, _ in words.holder_rows(report.case)[:3]]
    while room is not None and len(held) > 1 and len("; ".join(held)) > room:
        held.pop()
    return "; ".join(held)


def _ids(report: Report, wanted: Outcome, *, room: int | None) -> str:
    """The ids of an outcome's verdicts, as many as fit into ``room`` characters, and how many more there are."""
    ids = [v.id for v in words.by_outcome(report, wanted)]
    for count in range(len(ids), 0, -1):
        rest = f" and {len(ids) - count} more" if count < len(ids) else ""
        line = ", ".join(ids[:count]) + rest
        if room is None or len(line) <= room:
            return line
    return f"{len(ids)} others" if ids else ""
