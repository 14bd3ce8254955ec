"""Flow: where a value comes from.

Follows names to what reaches them, unpacking, ``for`` and ``with`` targets, displays, and calls of functions of the same file in
both directions (arguments in, results out). Does not know what any other call does, nor what other files hold.
"""

from __future__ import annotations

import ast
from collections import defaultdict
from collections.abc import Iterator, Sequence
from functools import cached_property
from typing import TYPE_CHECKING

from vramdoc.lint.bindings import Binding, Origin, Role, key_of
from vramdoc.lint.reaching import Reaching
from vramdoc.lint.source import DEFINITIONS

if TYPE_CHECKING:
    from vramdoc.lint.source import Source

DEPTH = 12
"""Steps a value is followed: deeper chains exist only in generated code."""
_CALL_SITES = 8
"""Calls of one function looked at for what is passed in: with more, the parameter may be anything."""


class Flow(Reaching):
    """Origins of values, on top of what reaches where."""

    def __init__(self, source: Source) -> None:
        super().__init__(source)
        self._following: set[ast.AST] = set()
        self._known: dict[ast.AST, list[Origin]] = {}

    def origins(self, node: ast.AST, depth: int = DEPTH) -> list[Origin]:
        """Where the value of ``node`` may come from, through names, conditions and functions of this file."""
        known = self._known.get(node)
        if known is not None:
            return known
        if depth <= 0 or node in self._following:
            return [Origin(Role.UNKNOWN, node)]
        outermost = not self._following
        self._following.add(node)
        try:
            found = list(dict.fromkeys(self._origins(node, depth - 1)))
        finally:
            self._following.discard(node)
        if outermost:  # within another search, what is being followed cuts the answer short
            self._known[node] = found
        return found

    def _origins(self, node: ast.AST, depth: int) -> Iterator[Origin]:
        if isinstance(node, (ast.NamedExpr, ast.Await, ast.Starred)):
            yield from self.origins(node.value, depth)
        elif isinstance(node, ast.IfExp):
            yield from self.origins(node.body, depth)
            yield from self.origins(node.orelse, depth)
        elif isinstance(node, ast.BoolOp):
            for value in node.values:
                yield from self.origins(value, depth)
        elif isinstance(node, (ast.Name, ast.Attribute, ast.Subscript)):
            reaching = self.reaching(node)
            for binding in reaching:
                yield from self._through(binding, depth)
            if not reaching:
                entry = self._entry(node, depth) if isinstance(node, ast.Subscript) else None
                unknown = Role.UNKNOWN if isinstance(node, ast.Name) else Role.VALUE
                yield from entry or [Origin(unknown, node)]
        elif isinstance(node, ast.Call):
            yield from self._results(node, depth)
        else:
            yield Origin(Role.VALUE, node)

    def _entry(self, node: ast.Subscript, depth: int) -> list[Origin] | None:
        """What a dictionary written in the file holds under a constant key."""
        if not isinstance(node.slice, ast.Constant):
            return None
        for origin in self.origins(node.value, depth):
            if isinstance(origin.node, ast.Dict) and origin.role is Role.VALUE:
                for key, value in zip(origin.node.keys, origin.node.values, strict=True):
                    if isinstance(key, ast.Constant) and key.value == node.slice.value:
                        return self.origins(value, depth)
        return None

    def _through(self, binding: Binding, depth: int) -> Iterator[Origin]:
        value = binding.value
        if value is None:
            return
        if binding.role is Role.PARAMETER:
            passed = list(self._passed(binding, depth))
            yield from passed or [Origin(Role.PARAMETER, value)]
        elif binding.augmented:
            yield Origin(Role.ADDED, value)
        elif binding.role is Role.VALUE:
            yield from self.origins(value, depth)
        elif binding.role in {Role.PART, Role.ITEM}:
            yield from self._elements(binding, value, depth)
        else:
            yield Origin(binding.role, value)

    def _elements(self, binding: Binding, value: ast.AST, depth: int) -> Iterator[Origin]:
        """Elements of displays are followed one by one; anything else is named as what holds them."""
        for origin in self.origins(value, depth):
            node = origin.node
            if not isinstance(node, (ast.Tuple, ast.List)) or origin.role is not Role.VALUE:
                yield Origin(binding.role, node)
                continue
            elements: list[ast.expr] = node.elts
            if binding.role is Role.PART:
                elements = elements[binding.index or 0 :][:1]
            elif binding.index is not None:
                rows = [e.elts for e in elements if isinstance(e, (ast.Tuple, ast.List))]
                elements = [row[binding.index] for row in rows if binding.index < len(row)]
            for element in elements:
                yield from self.origins(element, depth)

    def called(self, call: ast.Call) -> Sequence[ast.FunctionDef | ast.AsyncFunctionDef]:
        """The functions of this file that ``call`` may enter: by name, or by ``self.name`` in the same class."""
        callee = call.func
        if isinstance(callee, ast.Name):
            named = self.source.definitions.get(callee.id, ())
            return [f for f in named if not isinstance(self.source.parents[f], ast.ClassDef)]
        if isinstance(callee, ast.Attribute) and key_of(callee.value) in {"self", "cls"}:
            owner = self.source.class_of(call)
            named = self.source.definitions.get(callee.attr, ())
            return [f for f in named if owner is not None and self.source.parents[f] is owner]
        return ()

    def _results(self, call: ast.Call, depth: int) -> Iterator[Origin]:
        functions = self.called(call)
        returned = [value for function in functions for value in self.returned(function)]
        if not returned:
            yield Origin(Role.VALUE, call)
        for value in returned:
            yield from self.origins(value, depth)

    def returned(self, function: ast.FunctionDef | ast.AsyncFunctionDef) -> list[ast.expr]:
        """The expressions that ``function`` returns."""
        return [
            node.value
            for node in self.source.nodes.get(ast.Return, ())
            if isinstance(node, ast.Return)
            and node.value is not None
            and self.source.function(node) is function
        ]

    @cached_property
    def _call_sites(self) -> dict[ast.AST, list[ast.Call]]:
        table: dict[ast.AST, list[ast.Call]] = defaultdict(list)
        for node in self.source.nodes.get(ast.Call, ()):
            assert isinstance(node, ast.Call)
            for function in (*self.called(node), *self.constructed(node)):
                table[function].append(node)
        return table

    def constructed(self, call: ast.Call) -> list[ast.FunctionDef | ast.AsyncFunctionDef]:
        """The ``__init__`` that an instantiation of a class of this file runs."""
        owner = self.classes.get(call.func.id) if isinstance(call.func, ast.Name) else None
        inits = self.source.definitions.get("__init__", ()) if owner is not None else ()
        return [function for function in inits if self.source.parents[function] is owner]

    def applied(self, call: ast.Call) -> ast.Call:
        """``call`` with what ``functools.partial`` had given its callee before."""
        if not isinstance(call.func, ast.Name):
            return call
        made = [o.node for o in self.origins(call.func)]
        if len(made) != 1 or not isinstance(made[0], ast.Call) or not made[0].args:
            return call
        partial = made[0]
        if self.source.qualname(partial.func) != "functools.partial":
            return call
        whole = ast.Call(
            partial.args[0],
            [*partial.args[1:], *call.args],
            [*call.keywords, *partial.keywords],
        )
        return ast.copy_location(whole, call)

    def methods(self, call: ast.Call) -> list[ast.FunctionDef | ast.AsyncFunctionDef]:
        """The methods that ``call`` enters, where its receiver was made from a class of this file."""
        callee = call.func
        if not isinstance(callee, ast.Attribute):
            return []
        made = [o.node for o in self.origins(callee.value) if isinstance(o.node, ast.Call)]
        owners = [self.classes.get(m.func.id) for m in made if isinstance(m.func, ast.Name)]
        named = self.source.definitions.get(callee.attr, ())
        return [function for function in named if self.source.parents[function] in owners]

    def call_sites(self, function: ast.AST) -> Sequence[ast.Call]:
        """Calls of ``function`` in this file."""
        return self._call_sites.get(function, ())

    def _passed(self, binding: Binding, depth: int) -> Iterator[Origin]:
        function, parameter = binding.owner, binding.value
        if not isinstance(function, DEFINITIONS) or not isinstance(parameter, ast.arg):
            return
        positional = [*function.args.posonlyargs, *function.args.args]
        offset = 1 if positional and positional[0].arg in {"self", "cls"} else 0
        default = _default(function.args, parameter)
        sites = self.call_sites(function)
        if len(sites) > _CALL_SITES:
            return
        for call in sites:
            given = [k.value for k in call.keywords if k.arg == parameter.arg]
            if parameter in positional:
                index = positional.index(parameter) - offset
                given += [a for a in call.args[index:][:1] if not isinstance(a, ast.Starred)]
            for value in given or ([default] if default is not None else []):
                yield from self.origins(value, depth)
        for values in self._started.get(function.name, ()) if parameter in positional else ():
            for value in values[positional.index(parameter) - offset :][:1]:
                yield from self.origins(value, depth)
        if not sites and default is not None:
            yield from self.origins(default, depth)
            yield Origin(Role.PARAMETER, parameter)

    @cached_property
    def _started(self) -> dict[str, list[list[ast.expr]]]:
        """What processes and threads are given that are started on a function: ``Process(target=work, args=(queue,))``."""
        table: dict[str, list[list[ast.expr]]] = defaultdict(list)
        for call in self.source.calls_named("Process", "Thread"):
            given = {keyword.arg: keyword.value for keyword in call.keywords}
            target, values = given.get("target"), given.get("args")
            if isinstance(target, ast.Name) and isinstance(values, (ast.Tuple, ast.List)):
                table[target.id].append(values.elts)
        return table


def _default(arguments: ast.arguments, parameter: ast.arg) -> ast.expr | None:
    """The default of a parameter, if it has one that says something."""
    positional = [*arguments.posonlyargs, *arguments.args]
    pairs = [
        *zip(reversed(positional), reversed(arguments.defaults), strict=False),
        *zip(arguments.kwonlyargs, arguments.kw_defaults, strict=True),
    ]
    found = next((value for arg, value in pairs if arg is parameter), None)
    empty = isinstance(found, ast.Constant) and found.value is None
    return None if empty else found
