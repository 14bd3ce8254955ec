"""The one registry of formats: a name to its renderer, its file extension, and whether it is text or bytes.

It knows no renderer's insides and imports one only when it is used, so that listing formats costs nothing.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from importlib import import_module
from pathlib import PurePath
from typing import cast

from vramdoc.errors import UsageError
from vramdoc.report.contents import Report


@dataclass(frozen=True, slots=True, kw_only=True)
class Format:
    """One way to show a Report."""

    name: str
    extension: str
    binary: bool = False
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
        Format(
            name="terminal", extension=".txt", title="for people at a terminal",
            renderer="to_terminal:render_terminal",
        ),
        Format(
            name="markdown", extension=".md", title="for a ticket or a mail",
            renderer="to_markdown:render_markdown",
        ),
        Format(
            name="json", extension=".json", title="for programs, with bytes as integers",
            renderer="to_json:render_json",
        ),
        Format(
            name="github", extension=".txt", title="GitHub Actions annotations",
            renderer="to_github:render_github",
        ),
        Format(
            name="html", extension=".html", title="one interactive page that needs no network",
            renderer="to_html:render_html",
        ),
    )
}  # fmt: skip


def find_format(name: str) -> Format:
    """Return the format called ``name``.

    Raises:
        UsageError: there is none.
    """
    if name not in FORMATS:
        raise UsageError(f"there is no format {name!r}", f"choose one of {', '.join(FORMATS)}")
    return FORMATS[name]


def format_of_file(path: PurePath) -> Format:
    """Return the format that a file's extension asks for; ``.txt`` means the terminal's.

    Raises:
        UsageError: no format writes such files.
    """
    for entry in FORMATS.values():
        if entry.extension == path.suffix.lower():
            return entry
    known = ", ".join(sorted({entry.extension for entry in FORMATS.values()}))
    raise UsageError(
        f"no format is written as {path.suffix or 'a file without extension'!r}",
        f"use one of {known}",
    )
