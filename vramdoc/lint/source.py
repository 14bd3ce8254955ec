"""Source: one parsed Python file with what rules ask of it, built in a single pass over the tree.

Parents, nodes by type, calls by name, imports under any alias. What values flow where is next door (``flow``). Nothing in
the file is ever imported or executed.
"""

from __future__ import annotations

import ast
from collections import defaultdict
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import cached_property, wraps
from typing import TYPE_CHECKING, TypeAlias, TypeVar, cast

if TYPE_CHECKING:
    from vramdoc.lint.flow import Flow

Function: TypeAlias = ast.FunctionDef | ast.AsyncFunctionDef | ast.Lambda
FUNCTIONS = (ast.FunctionDef, ast.AsyncFunctionDef, ast.Lambda)
DEFINITIONS = (ast.FunctionDef, ast.AsyncFunctionDef)
COMPREHENSIONS = (ast.ListComp, ast.SetComp, ast.DictComp, ast.GeneratorExp)
LOOPS = (ast.For, ast.AsyncFor, ast.While)

_SHARED = frozenset({"ctx", "op", "ops"})
"""Fields whose nodes (ast.Load, ast.Add) the whole tree shares and that say nothing."""


class _ChildFields(dict[type[ast.AST], tuple[str, ...]]):
    """Fields of each kind of node that may hold nodes, worked out when the kind is first met."""

    def __missing__(self, kind: type[ast.AST]) -> tuple[str, ...]:
        skipped = _SHARED | {"value", "kind"} if kind is ast.Constant else _SHARED
        found = self[kind] = tuple(name for name in kind._fields if name not in skipped)
        return found


_CHILD_FIELDS = _ChildFields()


class Source:
    """A Python file, indexed."""

    def __init__(self, tree: ast.Module) -> None:
        self.tree = tree
        self.parents: dict[ast.AST, ast.AST] = {}
        self.memo: dict[object, object] = {}
        """What analyses have worked out about this file and want again (``once_a_file``)."""
        nodes: defaultdict[type[ast.AST], list[ast.AST]] = defaultdict(list)
        parents = self.parents
        order: list[ast.AST] = []
        stack: list[ast.AST] = [tree]
        while stack:
            node = stack.pop()
            kind = node.__class__
            order.append(node)
            nodes[kind].append(node)
            children: list[ast.AST] = []
            for name in _CHILD_FIELDS[kind]:
                value = getattr(node, name, None)
                if value.__class__ is list:
                    children += [item for item in value if isinstance(item, ast.AST)]
                elif isinstance(value, ast.AST):
                    children.append(value)
            for child in children:
                parents[child] = node
            stack += children[::-1]
        self.nodes: Mapping[type[ast.AST], Sequence[ast.AST]] = nodes
        self.position = {node: place for place, node in enumerate(order)}
        """Place in the order of the text."""

    # Names

    @cached_property
    def imports(self) -> Mapping[str, str]:
        """Local name to dotted name, for every import anywhere in the file: ``t`` to ``torch``, ``F`` to ``torch.nn.functional``."""
        table: dict[str, str] = {}
        for node in self.nodes.get(ast.Import, ()):
            assert isinstance(node, ast.Import)
            for alias in node.names:
                name = alias.asname or alias.name.partition(".")[0]
                table[name] = alias.name if alias.asname else name
        for node in self.nodes.get(ast.ImportFrom, ()):
            assert isinstance(node, ast.ImportFrom)
            for alias in node.names:
                dotted = f"{'.' * node.level}{node.module or ''}.{alias.name}"
                if alias.name != "*":
                    table[alias.asname or alias.name] = dotted
        return table

    @cached_property
    def star_import(self) -> str:
        """The module of ``from torch import *``, when exactly one is imported so."""
        modules = {
            node.module
            for node in self.nodes.get(ast.ImportFrom, ())
            if isinstance(node, ast.ImportFrom) and node.module and node.names[0].name == "*"
        }
        return modules.pop() if len(modules) == 1 else ""

    @cached_property
    def imported_modules(self) -> frozenset[str]:
        """First part of every imported module's name."""
        return frozenset(name.partition(".")[0] for name in self.imports.values()) | {
            self.star_import.partition(".")[0]
        }

    @cached_property
    def definitions(self) -> Mapping[str, Sequence[ast.FunctionDef | ast.AsyncFunctionDef]]:
        """Functions and methods by their name."""
        table: defaultdict[str, list[ast.FunctionDef | ast.AsyncFunctionDef]] = defaultdict(list)
        for kind in DEFINITIONS:
            for node in self.nodes.get(kind, ()):
                assert isinstance(node, DEFINITIONS)
                table[node.name].append(node)
        return table

    def qualname(self, node: ast.AST) -> str | None:
        """The dotted name that an expression stands for, imports and plain aliases resolved; None for anything else."""
        parts: list[str] = []
        while isinstance(node, ast.Attribute):
            parts.append(node.attr)
            node = node.value
        if not isinstance(node, ast.Name):
            return None
        root = self._root(node)
        return ".".join((root, *reversed(parts)))

    def _root(self, name: ast.Name) -> str:
        dotted = self.imports.get(name.id)
        bound = name.id in self.bound_names
        if dotted is not None and not (bound and self.flow.shadows(name)):
            return dotted
        value = self.flow.alias_of(name) if name.id in self.renamed else None
        if value is not None:
            return value
        if self.star_import and not bound and name.id not in self.definitions:
            return f"{self.star_import}.{name.id}"
        return name.id

    @cached_property
    def bound_names(self) -> frozenset[str]:
        """Every name that is assigned, or is a parameter, anywhere."""
        stored = {
            node.id
            for node in self.nodes.get(ast.Name, ())
            if isinstance(node, ast.Name) and not isinstance(node.ctx, ast.Load)
        }
        return frozenset(stored) | {
            node.arg for node in self.nodes.get(ast.arg, ()) if isinstance(node, ast.arg)
        }

    @cached_property
    def renamed(self) -> frozenset[str]:
        """Names assigned from another name or attribute: ``cat = torch.cat``."""
        return frozenset(
            target.id
            for node in self.nodes.get(ast.Assign, ())
            if isinstance(node, ast.Assign) and isinstance(node.value, (ast.Attribute, ast.Name))
            for target in node.targets
            if isinstance(target, ast.Name)
        )

    @cached_property
    def calls(self) -> Mapping[str, Sequence[ast.Call]]:
        """Calls by the last part of the callee's resolved name, in the order of the text."""
        table: defaultdict[str, list[ast.Call]] = defaultdict(list)
        for node in self.nodes.get(ast.Call, ()):
            assert isinstance(node, ast.Call)
            callee = node.func
            if isinstance(callee, ast.Attribute):
                table[callee.attr].append(node)
            elif isinstance(callee, ast.Name):
                name = self.imports.get(callee.id, callee.id)
                if callee.id in self.renamed:
                    name = self.flow.alias_of(callee) or name
                table[name.rpartition(".")[2]].append(node)
        return table

    def calls_named(self, *names: str) -> Iterator[ast.Call]:
        """Calls whose callee's name ends in one of ``names``."""
        for name in names:
            yield from self.calls.get(name, ())

    # Surroundings

    def ancestors(self, node: ast.AST) -> Iterator[ast.AST]:
        """From the parent outward to the module."""
        parent = self.parents.get(node)
        while parent is not None:
            yield parent
            parent = self.parents.get(parent)

    def statement(self, node: ast.AST) -> ast.stmt:
        """The statement that ``node`` is, or is part of."""
        while not isinstance(node, ast.stmt):
            node = self.parents[node]
        return node

    def function(self, node: ast.AST) -> Function | None:
        """The innermost function around ``node``."""
        return next((up for up in self.ancestors(node) if isinstance(up, FUNCTIONS)), None)

    def class_of(self, node: ast.AST) -> ast.ClassDef | None:
        """The innermost class around ``node``, functions in between included."""
        return next((up for up in self.ancestors(node) if isinstance(up, ast.ClassDef)), None)

    def loops(self, node: ast.AST) -> Iterator[ast.For | ast.AsyncFor | ast.While]:
        """Loops of the same function whose body repeats ``node``, innermost first."""
        child = node
        for up in self.ancestors(node):
            if isinstance(up, (*FUNCTIONS, ast.ClassDef)):
                return
            if isinstance(up, LOOPS) and (child in up.body or child is getattr(up, "test", None)):
                yield up
            child = up

    def within(self, node: ast.AST, outer: ast.AST) -> bool:
        """Whether ``node`` is ``outer`` or lies inside it."""
        return node is outer or any(up is outer for up in self.ancestors(node))

    @cached_property
    def flow(self) -> Flow:
        """Which bindings reach which use."""
        from vramdoc.lint.flow import Flow  # noqa: PLC0415 - the two describe one file together

        return Flow(self)


Answer = TypeVar("Answer")


def once_a_file(analysis: Callable[[Source], Answer]) -> Callable[[Source], Answer]:
    """An analysis of a whole file whose answer is kept with it, since several rules ask."""

    @wraps(analysis)
    def kept(source: Source) -> Answer:
        if analysis not in source.memo:
            source.memo[analysis] = analysis(source)
        return cast("Answer", source.memo[analysis])

    return kept


def argument(call: ast.Call, name: str, index: int | None = None) -> ast.expr | None:
    """The argument passed by keyword ``name`` or at position ``index``."""
    for keyword in call.keywords:
        if keyword.arg == name:
            return keyword.value
    if index is not None and index < len(call.args):
        found = call.args[index]
        return None if isinstance(found, ast.Starred) else found
    return None


def receiver(call: ast.Call) -> ast.expr | None:
    """What a method is called on."""
    return call.func.value if isinstance(call.func, ast.Attribute) else None


def last_name(node: ast.AST) -> str:
    """The last identifier of a chain: ``cache`` for ``self.cache[i]``; empty when there is none."""
    while isinstance(node, (ast.Subscript, ast.Call, ast.Starred)):
        node = node.func if isinstance(node, ast.Call) else node.value
    if isinstance(node, ast.Attribute):
        return node.attr
    return node.id if isinstance(node, ast.Name) else ""
