"""What lint says: violations, files it could not read, and the result of a run. Knows no rule and no way to show itself."""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum


class Level(str, Enum):
    """How wrong: ERROR only where a reader of the code would agree that it is."""

    ERROR = "error"
    WARNING = "warning"
    INFO = "info"

    def __str__(self) -> str:
        return self.value


@dataclass(frozen=True, slots=True, kw_only=True)
class Violation:
    """One rule's objection to one place. Lines and columns count from 1."""

    id: str
    level: Level
    path: str
    line: int
    column: int
    message: str
    end_line: int
    """Last line of the construct; an ignore comment on any of its lines counts."""

    @property
    def order(self) -> tuple[str, int, int, str]:
        """Sorting key: by file, then place, then rule."""
        return (self.path, self.line, self.column, self.id)


@dataclass(frozen=True, slots=True, kw_only=True)
class Unreadable:
    """A file that was asked for and not checked, and why, in one line."""

    path: str
    reason: str
    line: int = 0
    """Where reading failed; 0 when that is nowhere in particular."""


@dataclass(frozen=True, slots=True, kw_only=True)
class LintResult:
    """Everything one run found, sorted, so that equal input gives equal output."""

    violations: tuple[Violation, ...]
    files_checked: int
    unreadable: tuple[Unreadable, ...] = ()
