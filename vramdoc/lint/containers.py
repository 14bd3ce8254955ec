"""What a file puts into a list or dictionary after it was made: ``rows.append(x)``, ``tensors[name] = x``.

Goes by the container's name and the assignments that reach it. Does not know which entry a later ``rows[i]`` takes, nor what other
files put in.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator
from typing import TYPE_CHECKING

from vramdoc.lint.bindings import key_of
from vramdoc.lint.source import once_a_file, receiver

if TYPE_CHECKING:
    from vramdoc.lint.source import Source

ADDERS = ("append", "appendleft", "add", "insert", "put")
"""Methods whose last argument becomes an element."""
_VIEWS = frozenset({"items", "values", "keys"})


def put_into(source: Source, container: ast.AST) -> Iterator[ast.expr]:
    """The values put into ``container``, a name or attribute (or its ``items()``, ``values()``), anywhere in the file."""
    if isinstance(container, ast.Call) and getattr(container.func, "attr", "") in _VIEWS:
        container = receiver(container) or container
    key = key_of(container)
    made = set(source.flow.reaching(container)) if key is not None else set()
    if not made:
        return
    for place, value in _additions(source).get(key or "", ()):
        if made.intersection(source.flow.reaching(place)):
            yield value


@once_a_file
def _additions(source: Source) -> dict[str, list[tuple[ast.expr, ast.expr]]]:
    """Key of each container of the file to where something is put into it, and what."""
    table: dict[str, list[tuple[ast.expr, ast.expr]]] = {}
    for place, value in _added(source):
        key = key_of(place)
        if key is not None:
            table.setdefault(key, []).append((place, value))
    return table


def _added(source: Source) -> Iterator[tuple[ast.expr, ast.expr]]:
    for call in source.calls_named(*ADDERS):
        place = receiver(call)
        if place is not None and call.args:
            yield place, call.args[-1]
    for node in source.nodes.get(ast.Assign, ()):
        assert isinstance(node, ast.Assign)
        for target in node.targets:
            if isinstance(target, ast.Subscript):
                yield target.value, node.value
