"""``# vramdoc: ignore[VD001, VD002]`` and ``# vramdoc: ignore``: on any line of the construct a violation points at."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping

from vramdoc.lint.finding import Finding

_COMMENT = re.compile(r"#\s*vramdoc:\s*ignore(?:\[(?P<ids>[^\]]*)\])?", re.IGNORECASE)
ANY = frozenset({"*"})


def ignored_lines(text: str) -> Mapping[int, frozenset[str]]:
    """Line number to the ids ignored there; ``ANY`` for the bare comment."""
    if "vramdoc" not in text:
        return {}
    found: dict[int, frozenset[str]] = {}
    for number, line in enumerate(text.splitlines(), 1):
        match = _COMMENT.search(line)
        if match is not None:
            ids = match["ids"]
            names = {part.strip().upper() for part in (ids or "").split(",")}
            found[number] = ANY if ids is None else frozenset(names)
    return found


def is_ignored(finding: Finding, rule_id: str, lines: Mapping[int, frozenset[str]]) -> bool:
    """Whether a comment on one of the finding's lines names its rule, or every rule."""
    own: Iterable[frozenset[str]] = (
        ids for line, ids in lines.items() if finding.line <= line <= finding.end_line
    )
    return any(ids is ANY or rule_id in ids for ids in own)
