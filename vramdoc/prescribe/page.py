"""Page: what ``vramdoc explain`` and docs/findings show, as headed sections of plain text. It knows no subject and no terminal."""

from __future__ import annotations

import textwrap
from dataclasses import dataclass, field
from typing import Any

from vramdoc.printable import one_line, printable

_FENCES = {"kubernetes": "yaml", "cmd": "bat"}
"""Names of languages in Markdown, where ours differ."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Section:
    """A heading with a paragraph, a list, or a block of code under it."""

    heading: str
    text: str = ""
    items: tuple[str, ...] = ()
    code: str = ""
    language: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Page:
    """The explanation of one subject."""

    id: str
    kind: str
    """``finding``, ``prescription``, ``setting`` or ``contents``."""
    title: str
    sections: tuple[Section, ...]
    data: dict[str, Any] = field(default_factory=dict)
    """The same as plain values, for programs."""

    def to_json(self) -> dict[str, Any]:
        """Plain values; keys are only ever added."""
        return {
            "schema_version": 1,
            "kind": self.kind,
            "id": self.id,
            "title": self.title,
            "sections": [
                {"heading": s.heading, "text": s.text, "items": list(s.items), "code": s.code}
                for s in self.sections
            ],
            **self.data,
        }

    def to_markdown(self) -> str:
        """A page of documentation."""
        parts = [f"# {self.id}" if self.id else f"# {self.title}"]
        if self.id:
            parts.append(f"**{self.title}.**")
        for section in self.sections:
            parts += [f"## {section.heading}", *_markdown_body(section)]
        return "\n\n".join(parts) + "\n"

    def render(self, *, width: int = 80, colour: bool = False) -> str:
        """Text for a terminal of ``width`` columns. A config string is foreign text: nothing in it may steer the terminal."""
        bold, plain = ("\x1b[1m", "\x1b[0m") if colour else ("", "")
        head = f"{self.id}: {self.title}" if self.id else self.title
        lines = [f"{bold}{one_line(head)}{plain}"]
        for section in self.sections:
            lines += ["", f"{bold}{section.heading}{plain}"]
            if section.text:
                lines += textwrap.wrap(
                    printable(section.text),
                    width - 2,
                    initial_indent="  ",
                    subsequent_indent="  ",
                    break_on_hyphens=False,
                )
            for item in section.items:
                lines += textwrap.wrap(
                    printable(item), width - 4, initial_indent="  - ", subsequent_indent="    "
                )
            lines += [f"    {line}".rstrip() for line in section.code.splitlines()]
        return "\n".join(lines)


def _markdown_body(section: Section) -> list[str]:
    parts = [section.text] if section.text else []
    if section.items:
        parts.append("\n".join(f"- {item}" for item in section.items))
    if section.code:
        language = _FENCES.get(section.language, section.language)
        parts.append(f"```{language}\n{section.code}\n```")
    return parts
