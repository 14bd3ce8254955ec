"""The one registry of formats: a name to its renderer. A new format is a ``to_*.py`` and a line here.

It knows no renderer's insides and imports one only when it is used, so that listing formats costs nothing.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from importlib import import_module
from typing import cast

from vramdoc.errors import UsageError
from vramdoc.report.contents import Report


@dataclass(frozen=True, slots=True)
class Format:
    """One way to show a Report."""

    name: str
    title: str
    renderer: str
    """``module:function`` below ``vramdoc.report``; the function takes a Report."""

    def render(self, report: Report) -> str:
        """Render with the format's own defaults."""
        module, function = self.renderer.split(":")
        renderer = getattr(import_module(f"vramdoc.report.{module}"), function)
        return cast("Callable[[Report], str]", renderer)(report)


FORMATS: Mapping[str, Format] = {
    entry.name: entry
    for entry in (
        Format("terminal", "for people at a terminal", "to_terminal:render_terminal"),
        Format("markdown", "for a ticket or a mail", "to_markdown:render_markdown"),
        Format("json", "for programs, with bytes as integers", "to_json:render_json"),
        Format("github", "GitHub Actions annotations", "to_github:render_github"),
        Format("html", "one interactive page that needs no network", "to_html:render_html"),
    )
}


TABLES = ("csv", "parquet")
"""Kinds of file that the evidence's tables are written as (``frames``)."""


def find_format(name: str) -> Format:
    """Return the format called ``name``.

    Raises:
        UsageError: there is none.
    """
    if name not in FORMATS:
        raise UsageError(f"there is no format {name!r}", f"choose from {', '.join(FORMATS)}")
    return FORMATS[name]
