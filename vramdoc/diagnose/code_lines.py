"""The lines of a text's traceback, innermost first, with file names that are safe to show. It knows no cause."""

from __future__ import annotations

from dataclasses import dataclass

from vramdoc.crashlog.incident import CrashLog
from vramdoc.facts import Fact, Source


@dataclass(frozen=True, slots=True, kw_only=True)
class CodeLine:
    """One frame and what stood on its line ("" where the text does not show it)."""

    file: str
    """The last part of the path: folders can name people."""
    line: int
    function: str
    source: str

    def fact(self, name: str) -> Fact:
        """This line as evidence."""
        place = f"{self.file}:{self.line} in {self.function}"
        return Fact(name, self.source or self.function, "text", Source.READ, place)


def code_lines(log: CrashLog) -> list[CodeLine]:
    """Frames of the traceback that belongs to the failure, innermost first."""
    pairs = zip(log.frames, log.source_lines, strict=False)
    return [
        CodeLine(file=base_name(file), line=line, function=function, source=source)
        for (file, line, function), source in reversed(list(pairs))
    ]


def base_name(path: str) -> str:
    """The last part of a path of either kind."""
    return path.replace("\\", "/").rsplit("/", 1)[-1]
