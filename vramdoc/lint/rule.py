"""Rule: one memory mistake, with the text of its page and the examples that test it.

Each lives in its own file under ``rules/`` as a module-level ``RULE`` and hangs its checks on it by what they want to see:
calls by the last part of the callee's name, nodes by type, settings of allocator variables in any kind of file. A check
yields findings and does nothing else; the engine (``check``) adds rule and path.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, TypeVar

from vramdoc.lint.finding import Finding
from vramdoc.lint.violation import Level

if TYPE_CHECKING:
    from vramdoc.lint.settings import Setting, Target
    from vramdoc.lint.source import Source


@dataclass(frozen=True, slots=True, kw_only=True)
class Example:
    """A short file. In a bad one, each line that must be reported ends in ``# <rule id>``, or is named in ``lines``."""

    code: str
    file: str = "example.py"
    """Its name, which says how it is read: a Dockerfile, a ``.sh``, a ``.yaml``."""
    lines: tuple[int, ...] = ()
    """Lines to be reported, for formats that have no comment at the end of a line."""


CallCheck = Callable[["Source", ast.Call], Iterator[Finding]]
NodeCheck = Callable[["Source", ast.AST], Iterator[Finding]]
SettingCheck = Callable[["Setting", "Target"], Iterator[Finding]]
SourceCheck = Callable[["Source"], Iterator[Finding]]
_C = TypeVar("_C", bound=Callable[..., Iterator[Finding]])


@dataclass(frozen=True, slots=True, kw_only=True)
class Rule:
    """One mistake. Texts are Markdown."""

    id: str
    name: str
    """Kebab-case, for people: ``empty-cache-in-loop``."""
    title: str
    level: Level
    why: str
    """What happens, why it is bad, and the source: a PyTorch function and release, an issue."""
    instead: str
    """What to write, in a sentence or two."""
    bad: tuple[Example, ...]
    good: tuple[Example, ...]
    words: tuple[str, ...]
    """Identifiers of which a file must contain one to be worth parsing for this rule."""
    names: re.Pattern[str] | None = None
    """Or identifiers like these."""
    pattern: re.Pattern[str] | None = None
    """And what its text must match, where the words alone are too common."""
    limits: str = ""
    """What the rule does not see, or may see wrongly."""
    calls: dict[str, CallCheck] = field(default_factory=dict, repr=False)
    nodes: dict[type[ast.AST], NodeCheck] = field(default_factory=dict, repr=False)
    settings: list[SettingCheck] = field(default_factory=list, repr=False)
    sources: list[SourceCheck] = field(default_factory=list, repr=False)

    def is_worth(self, text: str, identifiers: set[str]) -> bool:
        """Whether a file with this text, in which these identifiers occur, may hold the mistake."""
        if identifiers.isdisjoint(self.words) and not (
            self.names is not None and any(map(self.names.search, identifiers))
        ):
            return False
        return self.pattern is None or self.pattern.search(text) is not None

    def on_call(self, *names: str) -> Callable[[_C], _C]:
        """Register a check for calls whose callee's name ends in one of ``names``."""

        def register(check: _C) -> _C:
            assert self.calls.keys().isdisjoint(names), (
                "one check a callee: the second would hide the first"
            )
            self.calls.update(dict.fromkeys(names, check))
            return check

        return register

    def on_node(self, *types: type[ast.AST]) -> Callable[[_C], _C]:
        """Register a check for nodes of these types."""

        def register(check: _C) -> _C:
            self.nodes.update(dict.fromkeys(types, check))
            return check

        return register

    def on_setting(self, check: _C) -> _C:
        """Register a check for every place that sets an allocator variable."""
        self.settings.append(check)
        return check

    def on_source(self, check: _C) -> _C:
        """Register a check that wants a whole Python file."""
        self.sources.append(check)
        return check
