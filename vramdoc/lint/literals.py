"""What constant an expression is, as far as the file tells: text with holes, and numbers.

Follows names, f-strings, ``+``, ``%``, ``.format``, ``join``; evaluates nothing else. A hole (``HOLE``) stands where a part is
not known, so that ``f"max_split_size_mb={size}"`` can still be judged.
"""

from __future__ import annotations

import ast
import math
import operator
import re
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING

from vramdoc.lint.bindings import Role
from vramdoc.lint.containers import put_into
from vramdoc.lint.source import argument, receiver

if TYPE_CHECKING:
    from vramdoc.lint.source import Source

HOLE = "\ufffc"
"""Object replacement character: nothing that people write in a config string."""
_DEPTH = 8
_MOST = 8
"""Alternatives kept: beyond a handful nobody reads them."""
_ARITHMETIC: Mapping[type[ast.operator], Callable[[float, float], float]] = {
    ast.Add: operator.add,
    ast.Sub: operator.sub,
    ast.Mult: operator.mul,
    ast.FloorDiv: operator.floordiv,
    ast.Div: operator.truediv,
    ast.Mod: operator.mod,
}
_SHIFTS: Mapping[type[ast.operator], Callable[[int, int], int]] = {
    ast.LShift: operator.lshift,
    ast.RShift: operator.rshift,
    ast.Pow: operator.pow,
}
_LARGEST_EXPONENT = 128


def texts(source: Source, node: ast.AST, depth: int = _DEPTH) -> tuple[str, ...]:
    """The strings that ``node`` may be, with holes; empty when it is not known to be a string at all."""
    if depth <= 0:
        return ()
    found: list[str] = []
    for origin in source.flow.origins(node):
        if origin.role is Role.VALUE:
            found.extend(_text_of(source, origin.node, depth - 1))
        elif origin.role is Role.ADDED:
            return ()
    return tuple(dict.fromkeys(found))[:_MOST]


def _text_of(source: Source, node: ast.AST, depth: int) -> tuple[str, ...]:
    if isinstance(node, ast.Constant):
        return (node.value,) if isinstance(node.value, str) else ()
    if isinstance(node, ast.JoinedStr):
        return (
            "".join(
                str(part.value) if isinstance(part, ast.Constant) else _shown(source, part, depth)
                for part in node.values
            ),
        )
    if isinstance(node, ast.BinOp) and isinstance(node.op, ast.Add):
        left, right = texts(source, node.left, depth), texts(source, node.right, depth)
        if not left and not right:
            return ()
        return tuple(a + b for a in left or (HOLE,) for b in right or (HOLE,))
    if isinstance(node, ast.BinOp) and isinstance(node.op, ast.Mod):
        return tuple(
            _percent(source, text, node.right, depth) for text in texts(source, node.left, depth)
        )
    if isinstance(node, ast.Call):
        return _method(source, node, depth)
    return ()


def _shown(source: Source, node: ast.AST, depth: int) -> str:
    """A formatted value: its one known text or number, else a hole."""
    inner = node.value if isinstance(node, ast.FormattedValue) else node
    plain = not isinstance(node, ast.FormattedValue) or node.format_spec is None
    known = texts(source, inner, depth) if plain else ()
    if len(known) == 1:
        return known[0]
    if isinstance(inner, ast.Constant) and isinstance(inner.value, bool):
        return str(inner.value)
    value = number(source, inner) if plain else None
    return HOLE if value is None else str(value)


def _percent(source: Source, text: str, right: ast.AST, depth: int) -> str:
    values = right.elts if isinstance(right, ast.Tuple) else [right]
    parts = iter([_shown(source, value, depth) for value in values])
    return re.sub(r"%[sdifrg]", lambda _: next(parts, HOLE), text)


def _method(source: Source, call: ast.Call, depth: int) -> tuple[str, ...]:
    target = receiver(call)
    name = call.func.attr if isinstance(call.func, ast.Attribute) else ""
    if source.qualname(call.func) == "str" and len(call.args) == 1:
        return (_shown(source, call.args[0], depth),)
    if target is None or name not in {"format", "join", "strip", "replace"}:
        return ()
    own = texts(source, target, depth)
    if name == "format":
        named = {k.arg: _shown(source, k.value, depth) for k in call.keywords if k.arg}
        shown = [_shown(source, value, depth) for value in call.args]
        return tuple(_format(text, shown, named) for text in own)
    if name == "join" and len(own) == 1 and call.args:
        joined = _joined(source, own[0], call.args[0], depth)
        return () if joined is None else (joined,)
    return tuple(text.strip() for text in own) if name == "strip" and not call.args else ()


def _format(text: str, shown: list[str], named: Mapping[str, str]) -> str:
    place = iter(range(len(shown)))

    def fill(match: re.Match[str]) -> str:
        name = match[1]
        if name == "" or name.isdigit():
            index = int(name) if name else next(place, len(shown))
            return shown[index] if index < len(shown) else HOLE
        return named.get(name, HOLE)

    return re.sub(r"\{(\w*)[^{}]*\}", fill, text)


def _joined(source: Source, separator: str, node: ast.AST, depth: int) -> str | None:
    for origin in source.flow.origins(node):
        if isinstance(origin.node, (ast.List, ast.Tuple)) and origin.role is Role.VALUE:
            elements = [*origin.node.elts, *_appended(source, node)]
            return separator.join(_shown(source, element, depth) for element in elements)
        if isinstance(origin.node, (ast.GeneratorExp, ast.ListComp)):
            entries = _entries(source, origin.node, depth)
            if entries is not None:
                return separator.join(entries)
            inner = texts(source, origin.node.elt, depth)
            return inner[0] if len(inner) == 1 else None
    return None


def _appended(source: Source, node: ast.AST) -> list[ast.expr]:
    """What was certainly appended to a list before it is joined."""
    taken = source.flow.branches(source.statement(node))
    return [
        value
        for value in put_into(source, node)
        if source.position[value] < source.position[node]
        and all(taken.get(up) == arm for up, arm in source.flow.branches(value).items())
        and next(source.loops(value), None) is None
    ]


def _entries(source: Source, made: ast.GeneratorExp | ast.ListComp, depth: int) -> list[str] | None:
    """The texts of ``f"{key}:{value}" for key, value in options.items()``, where the options are written out."""
    loop = made.generators[0]
    items = receiver(loop.iter) if isinstance(loop.iter, ast.Call) else None
    names = [n.id for n in getattr(loop.target, "elts", ()) if isinstance(n, ast.Name)]
    if not isinstance(made.elt, ast.JoinedStr) or items is None or len(names) != 2 or loop.ifs:
        return None
    options = [o.node for o in source.flow.origins(items) if isinstance(o.node, ast.Dict)]
    if len(options) != 1 or None in options[0].keys:
        return None
    entries: list[str] = []
    for pair in zip(options[0].keys, options[0].values, strict=True):
        row = dict(zip(names, pair, strict=True))
        entries.append(
            "".join(
                str(part.value)
                if isinstance(part, ast.Constant)
                else _shown(source, _in_row(part, row), depth)
                for part in made.elt.values
            )
        )
    return entries


def _in_row(part: ast.expr, row: Mapping[str, ast.expr | None]) -> ast.expr:
    """The expression that a placeholder stands for in one turn of the comprehension."""
    name = (
        part.value.id
        if isinstance(part, ast.FormattedValue) and isinstance(part.value, ast.Name)
        else ""
    )
    return row.get(name) or part


def number(source: Source, node: ast.AST | None, depth: int = _DEPTH) -> float | int | None:
    """The one number that ``node`` is; None when it may be several, or is not known."""
    if node is None or depth <= 0:
        return None
    origins = source.flow.origins(node)
    if len(origins) != 1 or origins[0].role is not Role.VALUE:
        return None
    return _number_of(source, origins[0].node, depth - 1)


def _number_of(source: Source, node: ast.AST, depth: int) -> float | int | None:
    if isinstance(node, ast.Constant):
        value = node.value
        return value if isinstance(value, (int, float)) and not isinstance(value, bool) else None
    if isinstance(node, ast.UnaryOp) and isinstance(node.op, ast.USub):
        value = number(source, node.operand, depth)
        return None if value is None else -value
    if isinstance(node, ast.BinOp):
        return _calculated(
            type(node.op), number(source, node.left, depth), number(source, node.right, depth)
        )
    if isinstance(node, ast.Call) and source.qualname(node.func) in {"int", "float"} and node.args:
        value = number(source, node.args[0], depth)
        if value is None or not math.isfinite(value):
            return None
        return int(value) if source.qualname(node.func) == "int" else float(value)
    return None


def _calculated(
    kind: type[ast.operator], left: float | int | None, right: float | int | None
) -> float | int | None:
    if left is None or right is None:
        return None
    try:
        if kind in _ARITHMETIC:
            return _ARITHMETIC[kind](left, right)
        bounded = (
            0 <= right <= _LARGEST_EXPONENT and isinstance(left, int) and isinstance(right, int)
        )
        if kind in _SHIFTS and bounded and abs(left) < 1 << 64:
            return _SHIFTS[kind](int(left), int(right))
    except (ArithmeticError, ValueError):
        return None
    return None


def truth(node: ast.AST | None) -> bool | None:
    """``True`` or ``False`` where it is written so."""
    return node.value if isinstance(node, ast.Constant) and isinstance(node.value, bool) else None


def flag(call: ast.Call, name: str) -> bool | None:
    """A keyword argument written as ``True`` or ``False``."""
    return truth(argument(call, name))
