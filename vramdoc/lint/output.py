"""A lint result as text, JSON, SARIF or GitHub annotations. Pure functions: result in, text out.

Paths and messages may quote hostile source: what a terminal or a CI runner reads has no control characters; JSON escapes them itself.
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Callable, Mapping
from pathlib import PurePath
from typing import Any

from vramdoc import __version__
from vramdoc.lint.page import paragraphs
from vramdoc.lint.rules import RULES
from vramdoc.lint.violation import Level, LintResult, Violation
from vramdoc.printable import printable

SCHEMA_VERSION = 1
_SARIF_LEVELS = {Level.ERROR: "error", Level.WARNING: "warning", Level.INFO: "note"}
_GITHUB_LEVELS = {Level.ERROR: "error", Level.WARNING: "warning", Level.INFO: "notice"}


def render(result: LintResult, output_format: str) -> str:
    """The result in one of ``FORMATS``.

    Raises:
        KeyError: an unknown format; the command line checks it before.
    """
    return FORMATS[output_format](result)


def to_text(result: LintResult) -> str:
    """One line a violation, as compilers write them, then a count."""
    lines = [
        f"{v.path}:{v.line}:{v.column}: {v.level} {v.id} {v.message}" for v in result.violations
    ]
    lines += [
        f"{u.path}{f':{u.line}' if u.line else ''}: not checked: {u.reason}"
        for u in result.unreadable
    ]
    return "\n".join([*map(_line, lines), _summary(result)])


def _line(text: str) -> str:
    r"""On one line, but with the blanks of a file name as they are; a line break in it shows as ``\n``."""
    return printable(text).replace("\n", "\\n")


def _summary(result: LintResult) -> str:
    counts = Counter(violation.level for violation in result.violations)
    parts = [_counted(counts[level], level.value) for level in Level if counts[level]]
    found = ", ".join(parts) or "nothing found"
    unread = len(result.unreadable)
    return f"{_counted(result.files_checked, 'file')} checked: {found}" + (
        f"; {_counted(unread, 'file')} not checked" if unread else ""
    )


def _counted(count: int, noun: str) -> str:
    return f"{count} {noun}{'' if count == 1 or noun == 'info' else 's'}"


def to_json(result: LintResult) -> str:
    """The contract of ``lint --format json``; keys are only ever added."""
    return json.dumps(
        {
            "schema_version": SCHEMA_VERSION,
            "files_checked": result.files_checked,
            "violations": [
                {
                    "id": v.id,
                    "level": v.level.value,
                    "path": v.path,
                    "line": v.line,
                    "column": v.column,
                    "end_line": v.end_line,
                    "message": v.message,
                }
                for v in result.violations
            ],
            "unreadable": [
                {"path": u.path, "line": u.line, "reason": u.reason} for u in result.unreadable
            ],
        },
        indent=2,
    )


def to_sarif(result: LintResult) -> str:
    """SARIF 2.1.0, for code-scanning uploads."""
    used = {violation.id for violation in result.violations}
    rules: list[dict[str, Any]] = [
        {
            "id": rule.id,
            "name": rule.name,
            "shortDescription": {"text": rule.title},
            "fullDescription": {"text": paragraphs(rule.why)},
            "help": {"text": paragraphs(rule.instead)},
            "defaultConfiguration": {"level": _SARIF_LEVELS[rule.level]},
        }
        for rule in RULES
        if rule.id in used
    ]
    index = {rule["id"]: position for position, rule in enumerate(rules)}
    run = {
        "tool": {"driver": {"name": "vramdoc", "version": __version__, "rules": rules}},
        "results": [
            {
                "ruleId": v.id,
                "ruleIndex": index[v.id],
                "level": _SARIF_LEVELS[v.level],
                "message": {"text": v.message},
                "locations": [{"physicalLocation": _sarif_place(v)}],
            }
            for v in result.violations
        ],
        "invocations": [
            {
                "executionSuccessful": True,
                "toolExecutionNotifications": [
                    {
                        "level": "warning",
                        "message": {"text": f"{_uri(u.path)}: not checked: {u.reason}"},
                    }
                    for u in result.unreadable
                ],
            }
        ],
    }
    document = {
        "$schema": "https://json.schemastore.org/sarif-2.1.0.json",
        "version": "2.1.0",
        "runs": [run],
    }
    return json.dumps(document, indent=2)


def _sarif_place(violation: Violation) -> dict[str, Any]:
    return {
        "artifactLocation": {"uri": _uri(violation.path)},
        "region": {
            "startLine": violation.line,
            "startColumn": violation.column,
            "endLine": violation.end_line,
        },
    }


def _uri(path: str) -> str:
    return PurePath(path).as_posix()


def to_github(result: LintResult) -> str:
    """Workflow commands that put each violation beside its line in a pull request."""
    lines = [
        f"::{_GITHUB_LEVELS[v.level]} title={v.id},file={_property(_uri(v.path))},line={v.line},"
        f"col={v.column},endLine={v.end_line}::{_data(v.message)}"
        for v in result.violations
    ]
    lines += [
        f"::warning file={_property(_uri(u.path))},line={u.line or 1}::{_data('not checked: ' + u.reason)}"
        for u in result.unreadable
    ]
    return "\n".join(lines)


def _data(text: str) -> str:
    return printable(text).replace("%", "%25").replace("\r", "%0D").replace("\n", "%0A")


def _property(text: str) -> str:
    return _data(text).replace(":", "%3A").replace(",", "%2C")


FORMATS: Mapping[str, Callable[[LintResult], str]] = {
    "text": to_text,
    "json": to_json,
    "sarif": to_sarif,
    "github": to_github,
}
