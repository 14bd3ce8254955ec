"""A Report as one interactive page: no network, everything inside, a policy that forbids the page to ask for anything.

Timeline and segment map are drawn in the reader's browser from ``page_data``; the chart library is uPlot (MIT, its licence
lies beside it). Without scripts the verdict, the action and the evidence can still be read.
"""

from __future__ import annotations

import base64
import hashlib
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache
from importlib import resources

from jinja2 import Environment, Template
from markupsafe import Markup

from vramdoc.diagnose.verdict import Outcome, Verdict
from vramdoc.facts import Fact
from vramdoc.printable import printable
from vramdoc.report import words
from vramdoc.report.contents import HEALTHY, UNDECIDED, Report
from vramdoc.report.page_data import PageData, page_data
from vramdoc.report.segment_map import map_text

SCRIPTS = ("uplot.js", "1_read.js", "2_layout.js", "3_timeline.js", "4_map.js", "5_page.js")
STYLES = ("uplot.css", "page.css")
LONGEST = 20_000
"""Characters shown of any one text; what the tool writes itself is far shorter."""


@dataclass(frozen=True, slots=True)
class _Shown:
    """One fact as a row that can be linked to."""

    fact: Fact
    anchor: str
    label: str
    value: str
    verdict: str = ""
    """The anchor of the verdict that cites it."""
    moment: str = ""
    """The moment of the recording that it is about."""


@dataclass(frozen=True, slots=True)
class _Judged:
    """One verdict with its facts' rows."""

    verdict: Verdict
    anchor: str
    outcome: str
    facts: Sequence[_Shown]


def render_html(report: Report) -> str:
    """Render ``report`` as one HTML document."""
    data = page_data(report.case)
    styles, scripts = _joined(STYLES), _joined(SCRIPTS if data else SCRIPTS[-1:])
    judged = _judged(report, data)
    cited = [row for entry in judged for row in entry.facts]
    cited_names = {row.fact.name for row in cited}
    best = words.best_action(report)
    workload = words.workload_line(report)
    return _template().render(
        report=report,
        words=words,
        title=words.outcome(report),
        mood={HEALTHY: "good", UNDECIDED: "open"}.get(report.primary, "bad"),
        best=best,
        others=[p for p in report.prescriptions if p is not best],
        device=words.device_line(report),
        workload=workload if workload != report.target_name else "",
        sureness=words.sureness(report),
        remarks=report.leading.notes if report.leading is not None else (),
        ranks=words.rank_line(report.case),
        deciders=words.deciders(report),
        verdicts=judged,
        ruled_out=words.by_outcome(report, Outcome.RULED_OUT),
        evidence=cited,
        figures=[
            _shown(fact, f"figure-{i}", data)
            for i, fact in enumerate(report.facts)
            if fact.name not in cited_names
        ],
        notes=[*report.notes, *(f"Missing: {sentence}" for sentence in words.also_missing(report))],
        surroundings=[
            *words.pairs(report.environment),
            *words.pairs(report.workload, "workload."),
            *words.pairs(_allocator_settings(report), "allocator_settings."),
        ],
        map=map_text(report.case, width=100) if data is None else "",
        data=data,
        data_json=Markup(_inert(data.json)) if data else "",  # noqa: S704 - made inert by _inert
        moments=data.moments if data else (),
        events=data.events if data else 0,
        styles=Markup(styles),  # noqa: S704 - our own file
        scripts=Markup(scripts),  # noqa: S704 - our own files
        policy=_policy(styles, scripts),
    )  # fmt: skip


def _inert(json_text: str) -> str:
    """JSON that cannot end the element it stands in: ``<``, ``>`` and ``&`` as escapes, which JSON reads back."""
    return json_text.replace("&", "\\u0026").replace("<", "\\u003c").replace(">", "\\u003e")


def _policy(styles: str, scripts: str) -> str:
    """Nothing may be loaded; only this style sheet and these scripts may run."""
    return (
        f"default-src 'none'; img-src data:; style-src '{_digest(styles)}'; script-src '{_digest(scripts)}'; "
        "base-uri 'none'; form-action 'none'"
    )


def _digest(text: str) -> str:
    return "sha256-" + base64.b64encode(hashlib.sha256(text.encode()).digest()).decode("ascii")


@cache
def _joined(names: tuple[str, ...]) -> str:
    folder = resources.files("vramdoc.report") / "page"
    return "\n".join((folder / name).read_text(encoding="utf-8") for name in names)


@cache
def _template() -> Template:
    environment = Environment(
        autoescape=True, trim_blocks=True, keep_trailing_newline=True, finalize=_finalize
    )
    environment.filters["first_upper"] = lambda text: text[:1].upper() + text[1:]
    return environment.from_string(_joined(("report.html.j2",)))


def _finalize(value: object) -> object:
    """Every text on its way into the page: printable, and not endless. Jinja2 escapes it afterwards."""
    if isinstance(value, Markup) or not isinstance(value, str):
        return value
    clean = printable(value)
    return (
        clean
        if len(clean) <= LONGEST
        else f"{clean[:LONGEST]} ... ({len(clean) - LONGEST} characters cut)"
    )


def _judged(report: Report, data: PageData | None) -> list[_Judged]:
    judged = []
    open_or_true = [v for v in report.verdicts if v.outcome is not Outcome.RULED_OUT]
    for number, verdict in enumerate(open_or_true):
        facts = [
            _shown(fact, f"fact-{number}-{i}", data, verdict=str(number))
            for i, fact in enumerate(verdict.evidence)
        ]
        judged.append(_Judged(verdict, str(number), verdict.outcome.value.replace("_", " "), facts))
    return judged


def _shown(fact: Fact, anchor: str, data: PageData | None, verdict: str = "") -> _Shown:
    return _Shown(
        fact, anchor, words.label(fact.name), words.fact_value(fact), verdict, _moment(fact, data)
    )


def _moment(fact: Fact, data: PageData | None) -> str:
    """Which moment of the recording a figure is about; empty when the page cannot show it."""
    if data is None or not data.has_trace:
        return ""
    if fact.name in {"reserved_peak", "active_peak"}:
        return f"peak {fact.name.removesuffix('_peak')}"
    about_failure = fact.name in {"requested", "largest_hole", "free", "external_bytes"}
    return "failure" if about_failure and "failure" in data.moments else ""


def _allocator_settings(report: Report) -> dict[str, object]:
    case = report.case
    snapshot = (case.oom_snapshot or case.snapshot) if case is not None else None
    return dict(snapshot.allocator_settings) if snapshot is not None else {}
