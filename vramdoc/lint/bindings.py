"""Bindings: every way in which Python source gives a variable, attribute or item a value.

Knows single nodes only; which binding is in force where is for ``flow`` to say.
"""

from __future__ import annotations

import ast
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from enum import Enum


class Role(Enum):
    """What the expression of an origin is to the value."""

    VALUE = "is the value"
    ITEM = "is iterated over"
    PART = "is unpacked, or holds it"
    ENTERED = "is the context manager entered"
    PARAMETER = "is the parameter it came in by"
    ADDED = "is added to it in place"
    UNKNOWN = "is a name whose value is not known here"


@dataclass(frozen=True, slots=True)
class Origin:
    """Where a value comes from: an expression (or parameter) and what that is to it."""

    role: Role
    node: ast.AST


@dataclass(frozen=True, slots=True)
class Binding:
    """One place that gives ``key`` a value."""

    key: str
    role: Role
    value: ast.AST | None
    """The expression; the ast.arg of a parameter; None where the value is of no interest (a definition, ``del``)."""
    owner: ast.AST
    """The statement, comprehension or function that binds."""
    index: int | None = None
    """Position in an unpacked tuple."""
    augmented: bool = False


def key_of(node: ast.AST) -> str | None:
    """A name for a variable, attribute or item with a simple index: ``self.k``, ``cache['k']``, ``keys[i]``."""
    if isinstance(node, ast.Name):
        return node.id
    if isinstance(node, ast.Attribute):
        inner = key_of(node.value)
        return inner and f"{inner}.{node.attr}"
    if isinstance(node, ast.Subscript):
        inner = key_of(node.value)
        if inner is None:
            return None
        if isinstance(node.slice, ast.Constant):
            return f"{inner}[{node.slice.value!r}]"
        index = key_of(node.slice)
        return index and f"{inner}[{index}]"
    return None


def root_of(key: str) -> str:
    """The variable a key starts from."""
    return key.partition(".")[0].partition("[")[0]


def _targets(
    target: ast.AST, role: Role, value: ast.AST | None, owner: ast.AST
) -> Iterator[Binding]:
    if isinstance(target, (ast.Tuple, ast.List)):
        for index, element in enumerate(target.elts):
            inner = element.value if isinstance(element, ast.Starred) else element
            for binding in _targets(inner, Role.PART if role is Role.VALUE else role, value, owner):
                yield Binding(
                    binding.key,
                    binding.role,
                    value,
                    owner,
                    index if binding.index is None else binding.index,
                )
        return
    key = key_of(target)
    if key is not None:
        yield Binding(key, role, value, owner)


def _assign(node: ast.AST) -> Iterator[Binding]:
    assert isinstance(node, ast.Assign)
    for target in node.targets:
        yield from _targets(target, Role.VALUE, node.value, node)


def _annotated(node: ast.AST) -> Iterator[Binding]:
    assert isinstance(node, ast.AnnAssign)
    if node.value is not None:
        yield from _targets(node.target, Role.VALUE, node.value, node)


def _augmented(node: ast.AST) -> Iterator[Binding]:
    assert isinstance(node, ast.AugAssign)
    key = key_of(node.target)
    if key is not None:
        yield Binding(key, Role.VALUE, node.value, node, augmented=True)


def _walrus(node: ast.AST) -> Iterator[Binding]:
    assert isinstance(node, ast.NamedExpr)
    yield Binding(node.target.id, Role.VALUE, node.value, node)


def _for(node: ast.AST) -> Iterator[Binding]:
    assert isinstance(node, (ast.For, ast.AsyncFor, ast.comprehension))
    yield from _targets(node.target, Role.ITEM, node.iter, node)


def _with(node: ast.AST) -> Iterator[Binding]:
    assert isinstance(node, (ast.With, ast.AsyncWith))
    for item in node.items:
        if item.optional_vars is not None:
            yield from _targets(item.optional_vars, Role.ENTERED, item.context_expr, node)


def _handler(node: ast.AST) -> Iterator[Binding]:
    assert isinstance(node, ast.ExceptHandler)
    if node.name:
        yield Binding(node.name, Role.UNKNOWN, None, node)


def _called(node: ast.AST) -> Iterator[Binding]:
    """``self.register_buffer("cache", tensor)`` binds ``self.cache``; ``t.set_(source)`` gives ``t`` the source's storage."""
    assert isinstance(node, ast.Call)
    callee = node.func
    if not isinstance(callee, ast.Attribute):
        return
    owner = key_of(callee.value)
    if callee.attr == "set_" and owner is not None and node.args:
        yield Binding(owner, Role.VALUE, node.args[0], node)
    if callee.attr not in _REGISTERS or len(node.args) < 2:
        return
    name = node.args[0]
    if owner is not None and isinstance(name, ast.Constant) and isinstance(name.value, str):
        yield Binding(f"{owner}.{name.value}", Role.VALUE, node.args[1], node)


_REGISTERS = frozenset({"register_buffer", "register_parameter"})


def _deleted(node: ast.AST) -> Iterator[Binding]:
    assert isinstance(node, ast.Delete)
    for target in node.targets:
        yield from _targets(target, Role.UNKNOWN, None, node)


READERS: Mapping[type[ast.AST], Callable[[ast.AST], Iterator[Binding]]] = {
    ast.Assign: _assign,
    ast.AnnAssign: _annotated,
    ast.AugAssign: _augmented,
    ast.NamedExpr: _walrus,
    ast.For: _for,
    ast.AsyncFor: _for,
    ast.comprehension: _for,
    ast.With: _with,
    ast.AsyncWith: _with,
    ast.ExceptHandler: _handler,
    ast.Delete: _deleted,
    ast.Call: _called,
}
"""What each kind of node binds."""
