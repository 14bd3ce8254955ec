"""Finding: a place in one file and what is wrong there. Which rule says so, and in which file, the engine adds (``check``)."""

from __future__ import annotations

import ast
from dataclasses import dataclass

from vramdoc.lint.violation import Level


@dataclass(frozen=True, slots=True, kw_only=True)
class Finding:
    """A place and what is wrong there. ``level`` overrides the rule's own where this case is milder or worse."""

    line: int
    column: int
    end_line: int
    message: str
    level: Level | None = None


def at(
    node: ast.expr | ast.stmt | ast.excepthandler, message: str, level: Level | None = None
) -> Finding:
    """A finding at the place where ``node`` starts."""
    return Finding(
        line=node.lineno,
        column=node.col_offset + 1,
        end_line=node.end_lineno or node.lineno,
        message=message,
        level=level,
    )
