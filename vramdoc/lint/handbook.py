"""docs/lint.md: a table of every rule, then their pages. ``python -m vramdoc.lint.handbook docs/lint.md`` writes it."""

from __future__ import annotations

import sys
from pathlib import Path

from vramdoc.lint.page import page_of
from vramdoc.lint.rules import RULES

_FAMILIES = {
    "VD0": "Allocator settings",
    "VD1": "Storages that cannot grow",
    "VD2": "KV caches",
    "VD3": "Tensors kept, tensors needless",
    "VD4": "Loops",
    "VD5": "Loading, processes, devices",
}
_OPENING = """\
# Lint rules

`vramdoc lint PATH...` reads Python, notebooks, shell scripts, Dockerfiles, YAML and `.env` files; nothing in them is imported or executed.
A comment on the line switches rules off: `# vramdoc: ignore[VD401]`, or `# vramdoc: ignore` for all of them. `--select` and `--ignore` take ids
and beginnings of ids (`VD0`). `--torch 2.9 --platform windows` judges settings for where they will run.

An error is what a reader of the code would call wrong; a warning costs memory or works only by luck; info is worth knowing.

<!-- Written from the rules by `python -m vramdoc.lint.handbook docs/lint.md`; a test holds it current. -->
"""


def handbook() -> str:
    """The whole document."""
    parts = [_OPENING]
    for prefix, family in _FAMILIES.items():
        rules = [rule for rule in RULES if rule.id.startswith(prefix)]
        rows = [
            f"| [{r.id}](#{r.id.lower()}-{r.name}) | {r.name} | {r.level} | {r.title} |"
            for r in rules
        ]
        parts.append(
            "\n".join(
                [
                    f"**{family}**",
                    "",
                    "| id | name | level | what |",
                    "| --- | --- | --- | --- |",
                    *rows,
                    "",
                ]
            )
        )
    parts.extend(page_of(rule, "##") for rule in RULES)
    return "\n".join(parts)


if __name__ == "__main__":
    Path(sys.argv[1]).write_text(handbook(), encoding="utf-8")
