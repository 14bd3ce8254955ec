"""A Report as GitHub Actions annotations: one line a finding, on stdout. The job summary is the Markdown ticket.

The escaping follows GitHub's own toolkit (packages/core/src/command.ts): foreign text cannot start a command of its own.
"""

from __future__ import annotations

from vramdoc.diagnose.verdict import Severity
from vramdoc.printable import printable
from vramdoc.report import words
from vramdoc.report.contents import HEALTHY, Report
from vramdoc.report.to_markdown import render_markdown

_LEVELS = {Severity.ERROR: "error", Severity.WARNING: "warning", Severity.INFO: "notice"}
SUMMARY_VARIABLE = "GITHUB_STEP_SUMMARY"
"""Names the file that a job's summary is appended to; the command line reads it."""


def render_github(report: Report) -> str:
    """One annotation for each confirmed verdict, the primary one with its fix; one notice when there is none."""
    if not report.confirmed:
        level = "notice" if report.primary == HEALTHY else "warning"
        return _annotation(level, words.outcome(report), report.headline)
    lines = []
    for verdict in report.confirmed:
        message = verdict.summary
        if verdict.id == report.primary:
            message = f"{report.headline}{_fix(report)}"
        lines.append(_annotation(_LEVELS[verdict.severity], verdict.id, message))
    return "".join(lines)


def render_job_summary(report: Report) -> str:
    """What belongs into ``$GITHUB_STEP_SUMMARY``."""
    return render_markdown(report)


def _fix(report: Report) -> str:
    action = words.best_action(report)
    if action is None:
        return ""
    snippet = words.best_snippet(action, report)
    pasted = f"\n{snippet[1]}" if snippet else ""
    return f"\n{action.change} ({words.trial_line(action.verification)}){pasted}"


def _annotation(level: str, title: str, message: str) -> str:
    return f"::{level} title={_property(f'vramdoc: {title}')}::{_data(message)}\n"


def _data(content: str) -> str:
    return printable(content).replace("%", "%25").replace("\r", "%0D").replace("\n", "%0A")


def _property(content: str) -> str:
    return _data(content).replace(":", "%3A").replace(",", "%2C")
