"""Where Python source sets an allocator variable: the process's environment, a dictionary for a child, a shell command, the setter.

Any spelling that ends in the same place counts: ``os.environ`` under an alias, ``setdefault``, ``update``, ``putenv``, ``|=``,
names and f-strings for key and value.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Iterable, Iterator
from itertools import pairwise
from typing import TYPE_CHECKING

from vramdoc.lint.bindings import Role
from vramdoc.lint.literals import HOLE, number, texts
from vramdoc.lint.settings import CONF_VARIABLES, SETTERS, VARIABLES, Reach, Setting
from vramdoc.lint.shell import shell_settings
from vramdoc.lint.source import once_a_file, receiver

if TYPE_CHECKING:
    from vramdoc.lint.source import Source

_SHELL_CALLS = (
    "system",
    "run",
    "Popen",
    "call",
    "check_call",
    "check_output",
    "getoutput",
    "popen",
)


@once_a_file
def settings_of(source: Source) -> tuple[Setting, ...]:
    """Every setting of the file, in the order of the text."""
    found = [
        *_assigned(source),
        *_displays(source),
        *_called(source),
        *_commands(source),
        *_words(source),
    ]
    return tuple(sorted(dict.fromkeys(found), key=lambda s: (s.line, s.column)))


def is_environment(source: Source, node: ast.AST | None) -> bool:
    """Whether ``node`` is os.environ, under whatever name."""
    return node is not None and source.qualname(node) in {"os.environ", "os.environb"}


def _setting(
    source: Source, name: str, value: ast.AST | None, place: ast.expr | ast.stmt, reach: Reach
) -> Iterator[Setting]:
    for text in _values(source, value) or (None,):
        yield Setting(
            variable=name,
            value=text,
            line=place.lineno,
            column=place.col_offset + 1,
            end_line=place.end_lineno or place.lineno,
            reach=reach,
            node=place,
        )


def _values(source: Source, value: ast.AST | None) -> tuple[str, ...]:
    if value is None:
        return ()
    found = texts(source, value)
    if not found:
        known = number(source, value)
        return () if known is None else (f"{known}",)
    return found


def _variables(source: Source, key: ast.AST | None) -> list[str]:
    return [name for name in texts(source, key) if name in VARIABLES] if key is not None else []


def _assigned(source: Source) -> Iterator[Setting]:
    for node in (*source.nodes.get(ast.Assign, ()), *source.nodes.get(ast.AugAssign, ())):
        if isinstance(node, ast.Assign):
            pairs = [pair for target in node.targets for pair in _pairs(target, node.value)]
        else:
            assert isinstance(node, ast.AugAssign)
            pairs = [(node.target, node.value)]
        for target, value in pairs:
            if isinstance(node, ast.AugAssign) and is_environment(source, target):
                yield from _display(source, value, Reach.PROCESS, node)
            if not isinstance(target, ast.Subscript):
                continue
            reach = Reach.PROCESS if is_environment(source, target.value) else Reach.CHILD
            names = _variables(source, target.slice)
            for name in names:
                if isinstance(node, ast.AugAssign):
                    for text in _values(source, value):
                        yield from _literal(name, HOLE + text, node, reach)
                elif not _was_set_before(source, value):
                    yield from _setting(source, name, value, node, reach)
            if not names and reach is Reach.PROCESS:
                yield from _copied(source, target.slice, node)


def _was_set_before(source: Source, value: ast.AST) -> bool:
    """Whether a value is what the environment held: ``os.environ[name] = old`` puts it back."""
    origins = source.flow.origins(value)
    return bool(origins) and all(_reads_environment(source, origin.node) for origin in origins)


def _reads_environment(source: Source, node: ast.AST) -> bool:
    if isinstance(node, ast.Subscript):
        return is_environment(source, node.value)
    if not isinstance(node, ast.Call) or len(node.args) > 2:
        return False
    defaults = node.args[1:]
    plain = all(isinstance(d, ast.Constant) and d.value in {None, ""} for d in defaults)
    reads = source.qualname(node.func) == "os.getenv" or is_environment(source, receiver(node))
    return plain and reads


def _literal(name: str, value: str, place: ast.expr | ast.stmt, reach: Reach) -> Iterator[Setting]:
    yield Setting(
        variable=name,
        value=value,
        line=place.lineno,
        column=place.col_offset + 1,
        end_line=place.end_lineno or place.lineno,
        reach=reach,
        node=place,
    )


def _pairs(target: ast.AST, value: ast.expr) -> Iterator[tuple[ast.AST, ast.expr]]:
    """Targets with their values; tuples on both sides are taken apart."""
    if isinstance(target, ast.Tuple) and isinstance(value, ast.Tuple):
        for one, its_value in zip(target.elts, value.elts):  # noqa: B905 - source may be wrong
            yield from _pairs(one, its_value)
    else:
        yield target, value


def _copied(source: Source, key: ast.AST, place: ast.stmt) -> Iterator[Setting]:
    """``for name, value in settings.items(): os.environ[name] = value``: judged at the dictionary, set here."""
    for origin in source.flow.origins(key):
        if origin.role is Role.ITEM:
            for name in _keys_of(source, origin.node):
                yield from _setting(source, name, None, place, Reach.PROCESS)


def _keys_of(source: Source, node: ast.AST) -> list[str]:
    """Allocator variables among the keys of a dictionary (or its ``items()``) written in the file."""
    if isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute):
        node = node.func.value
    return [
        name
        for origin in source.flow.origins(node)
        if isinstance(origin.node, ast.Dict)
        for key in origin.node.keys
        for name in _variables(source, key)
    ]


def _displays(source: Source) -> Iterator[Setting]:
    """Dictionaries: ``{"PYTORCH_CUDA_ALLOC_CONF": ...}`` wherever it goes."""
    for node in source.nodes.get(ast.Dict, ()):
        parent = source.parents[node]
        direct = isinstance(parent, ast.Call) and is_environment(source, receiver(parent))
        if isinstance(parent, ast.AugAssign) and is_environment(source, parent.target):
            continue  # yielded where the assignment is
        yield from _display(source, node, Reach.PROCESS if direct else Reach.CHILD, None)


def _display(
    source: Source, node: ast.AST, reach: Reach, place: ast.stmt | None
) -> Iterator[Setting]:
    if not isinstance(node, ast.Dict):
        if place is not None:
            for name in _keys_of(source, node):
                yield from _setting(source, name, None, place, reach)
        return
    for key, value in zip(node.keys, node.values, strict=True):
        for name in _variables(source, key) if key is not None else ():
            yield from _setting(source, name, value, key or node, reach)


def _called(source: Source) -> Iterator[Setting]:
    for name in filter(_SETS.search, source.calls):
        for call in source.calls[name]:
            yield from _set_by(source, call)
    for call in source.calls_named("update", "dict"):
        reach = Reach.PROCESS if is_environment(source, receiver(call)) else Reach.CHILD
        yield from _keywords(source, call.keywords, reach)
        if reach is Reach.PROCESS:
            for argument in call.args:
                if not isinstance(argument, ast.Dict):
                    for name in _keys_of(source, argument):
                        yield from _setting(source, name, None, call, reach)
    for call in source.calls_named(*SETTERS):
        if call.args:
            yield from _setting(source, CONF_VARIABLES[0], call.args[0], call, Reach.RUN_TIME)


_SETS = re.compile(r"^_*(set|put|add|with|export)_?|setitem|setdefault|_env$")


def _set_by(source: Source, call: ast.Call) -> Iterator[Setting]:
    """``environ.setdefault(name, value)``, ``putenv``, ``set_key(file, name, value)``: a value behind a variable's name."""
    own = source.qualname(call.func) == "os.putenv" or is_environment(source, receiver(call))
    for key, value in pairwise(call.args):
        for name in _variables(source, key):
            yield from _setting(source, name, value, call, Reach.PROCESS if own else Reach.CHILD)


def _words(source: Source) -> Iterator[Setting]:
    """``["env", "PYTORCH_CUDA_ALLOC_CONF=...", "python"]``, ``environment=["PYTORCH_CUDA_ALLOC_CONF=..."]``."""
    for kind in (ast.List, ast.Tuple):
        for node in source.nodes.get(kind, ()):
            assert isinstance(node, (ast.List, ast.Tuple))
            for word in node.elts:
                for text in (
                    texts(source, word) if isinstance(word, (ast.Constant, ast.JoinedStr)) else ()
                ):
                    name, equals, value = text.partition("=")
                    if equals and name in VARIABLES:
                        yield from _literal(name, value, word, Reach.CHILD)


def _keywords(source: Source, keywords: Iterable[ast.keyword], reach: Reach) -> Iterator[Setting]:
    for keyword in keywords:
        if keyword.arg in VARIABLES:
            yield from _setting(source, keyword.arg, keyword.value, keyword.value, reach)


def _commands(source: Source) -> Iterator[Setting]:
    """``os.system("PYTORCH_CUDA_ALLOC_CONF=... python train.py")``."""
    for call in source.calls_named(*_SHELL_CALLS):
        module = (source.qualname(call.func) or "").partition(".")[0]
        if module not in {"os", "subprocess"} or not call.args:
            continue
        for text in texts(source, call.args[0]):
            for found in shell_settings(text):
                if found.value is not None:
                    yield from _literal(
                        found.variable, found.value, source.statement(call), Reach.CHILD
                    )
