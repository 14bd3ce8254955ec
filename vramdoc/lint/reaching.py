"""Reaching definitions: which assignments may have given a variable, attribute or item its value at a use.

Sensitive to the order of statements and to branches, not to conditions: after ``if c: t = a`` both ``a`` and what ``t`` was
before may reach. Does not look at the values themselves; that is ``flow``'s.
"""

from __future__ import annotations

import ast
from collections import defaultdict
from collections.abc import Iterator, Sequence
from functools import cached_property
from typing import TYPE_CHECKING, TypeAlias

from vramdoc.lint.bindings import READERS, Binding, Role, key_of, root_of
from vramdoc.lint.source import COMPREHENSIONS, FUNCTIONS

if TYPE_CHECKING:
    from vramdoc.lint.source import Source

Scope: TypeAlias = ast.AST
_BRANCHES = (ast.If, ast.Try, ast.Match)
_JUMPS = (ast.Return, ast.Raise, ast.Continue, ast.Break)


class Reaching:
    """Bindings of one file by scope and key, and which of them reach a use."""

    def __init__(self, source: Source) -> None:
        self.source = source
        self._branches: dict[ast.AST, dict[ast.AST, str]] = {}
        self._reaching: dict[ast.AST, Sequence[Binding]] = {}
        self._renaming: set[ast.AST] = set()
        """Names whose alias is being looked up, against circles."""

    # Bindings

    @cached_property
    def bindings(self) -> dict[Scope, dict[str, list[Binding]]]:
        """Every binding, by the scope it is made in, in the order of the text."""
        table: dict[Scope, dict[str, list[Binding]]] = defaultdict(lambda: defaultdict(list))
        for node, found in sorted(self._bound(), key=lambda pair: self.source.position[pair[0]]):
            scope = self._binding_scope(node, found.key)
            table[scope][found.key].append(found)
        return table

    def _bound(self) -> Iterator[tuple[ast.AST, Binding]]:
        nodes = self.source.nodes
        for kind, read in READERS.items():
            for node in nodes.get(kind, ()):
                for binding in read(node):
                    yield node, binding

    def _binding_scope(self, node: ast.AST, key: str) -> Scope:
        if isinstance(node, ast.comprehension):
            return self.source.parents[node]
        scope = self.scope(self.source.parents.get(node, self.source.tree))
        while isinstance(node, ast.NamedExpr) and isinstance(scope, COMPREHENSIONS):
            scope = self.scope(self.source.parents[scope])
        if root_of(key) in self._globals.get(scope, ()):
            return self.source.tree
        return scope

    @cached_property
    def _globals(self) -> dict[Scope, set[str]]:
        table: dict[Scope, set[str]] = defaultdict(set)
        for node in self.source.nodes.get(ast.Global, ()):
            assert isinstance(node, ast.Global)
            table[self.scope(node)].update(node.names)
        return table

    def is_global(self, name: str, function: ast.AST) -> bool:
        """Whether ``function`` declares ``name`` global."""
        return name in self._globals.get(function, ())

    def scope(self, node: ast.AST) -> Scope:
        """The innermost function, class, comprehension or module around ``node`` (itself included)."""
        kinds = (*FUNCTIONS, ast.ClassDef, *COMPREHENSIONS, ast.Module)
        while not isinstance(node, kinds):
            node = self.source.parents[node]
        return node

    def _scopes(self, node: ast.AST) -> Iterator[Scope]:
        """Scopes in which a name used at ``node`` is looked up, innermost first: class bodies are skipped from within methods."""
        parent = self.source.parents.get(node)
        passed_function = False
        while parent is not None:
            if isinstance(parent, (*FUNCTIONS, *COMPREHENSIONS, ast.Module)):
                yield parent
                passed_function = passed_function or isinstance(parent, FUNCTIONS)
            elif isinstance(parent, ast.ClassDef) and not passed_function:
                yield parent
            parent = self.source.parents.get(parent)

    def parameter(self, function: ast.AST, name: str) -> ast.arg | None:
        """The parameter ``name`` of ``function``."""
        if not isinstance(function, FUNCTIONS):
            return None
        args = function.args
        every = [*args.posonlyargs, *args.args, *args.kwonlyargs, args.vararg, args.kwarg]
        return next((arg for arg in every if arg is not None and arg.arg == name), None)

    def is_local(self, name: ast.Name) -> bool:
        """Whether a function or comprehension around ``name`` binds it, rather than the module."""
        return any(
            self.parameter(scope, name.id) is not None or name.id in self.bindings.get(scope, ())
            for scope in self._scopes(name)
            if not isinstance(scope, ast.Module)
        )

    def shadows(self, name: ast.Name) -> bool:
        """Whether a variable or parameter hides an import of the same name."""
        for scope in self._scopes(name):
            if self.parameter(scope, name.id) is not None:
                return True
            if name.id in self.bindings.get(scope, ()):
                return True
        return False

    def alias_of(self, name: ast.Name) -> str | None:
        """The dotted name that ``name`` was bound to, once and plainly: ``cat = torch.cat``."""
        if name in self._renaming:
            return None
        reaching = self.reaching(name)
        if len(reaching) != 1 or reaching[0].role is not Role.VALUE:
            return None
        value = reaching[0].value
        if reaching[0].augmented or not isinstance(value, (ast.Attribute, ast.Name)):
            return None
        self._renaming.add(name)
        try:
            found = self.source.qualname(value)
        finally:
            self._renaming.discard(name)
        # A plain variable renamed is still that variable; only names that lead to an import mean something elsewhere.
        return found if found and root_of(found) in self.source.imported_modules else None

    # Reaching definitions

    def reaching(self, use: ast.AST) -> Sequence[Binding]:
        """The bindings that may have given the variable, attribute or item ``use`` its value, nearest first."""
        known = self._reaching.get(use)
        if known is None:
            known = self._reaching[use] = self._find(use)
        return known

    def _find(self, use: ast.AST) -> Sequence[Binding]:
        key = key_of(use)
        if key is None:
            return ()
        root = root_of(key)
        for scope in self._scopes(use):
            found = self._in_scope(scope, key, use)
            if found:
                return found
            if root == key:
                continue
            if self.parameter(scope, root) is not None or root in self.bindings.get(scope, ()):
                break
        return self._attributes(key, use) if "." in key else ()

    def _in_scope(self, scope: Scope, key: str, use: ast.AST) -> list[Binding]:
        candidates = self.bindings.get(scope, {}).get(key, [])
        found = self._visible(candidates, scope, use)
        certain = bool(found) and not self._conditional(found[-1], use)
        argument = self.parameter(scope, key)
        if argument is not None and not certain:
            found.append(Binding(key, Role.PARAMETER, argument, scope))
        return found

    def _visible(self, candidates: Sequence[Binding], scope: Scope, use: ast.AST) -> list[Binding]:
        """Those of ``candidates`` that may be in force at ``use``, nearest first, up to one that certainly ran."""
        here = self._point(scope, use)
        taken = {} if here is None else self.branches(here)
        before, carried = self._in_order(candidates, scope, here)
        found: list[Binding] = []
        arms: dict[ast.AST, set[str]] = defaultdict(set)
        for binding in reversed(before):
            own = self.branches(binding.owner)
            if any(node in taken and taken[node] != arm for node, arm in own.items()):
                continue
            open_arms = {node: arm for node, arm in own.items() if node not in taken}
            if any(_ends_in_jump(node, arm) for node, arm in open_arms.items()):
                continue
            found.append(binding)
            for node, arm in open_arms.items():
                arms[node].add(arm)
            if not binding.augmented and all(
                {"body", "orelse"} <= arms[node] for node in open_arms
            ):
                break
        if carried and not any(self._repeats_with(b.owner, carried[0].owner, here) for b in found):
            found.extend(carried)
        return found

    def _in_order(
        self, candidates: Sequence[Binding], scope: Scope, here: ast.AST | None
    ) -> tuple[Sequence[Binding], Sequence[Binding]]:
        """Bindings made before ``here``, and those made after it that a loop around both brings back."""
        # A use in an inner function runs later: every binding of the outer scope has been made by then. What the header
        # of a lambda or comprehension binds is visible in all of it.
        if here is None or isinstance(scope, (ast.Lambda, *COMPREHENSIONS)):
            return candidates, ()
        position = self.source.position
        before = [b for b in candidates if position[b.owner] < position[here]]
        if len(before) == len(candidates):
            return before, ()
        loops = list(self.source.loops(here))
        carried = [
            b
            for b in candidates[len(before) :]
            if any(self.source.within(b.owner, loop) for loop in loops)
        ]
        return before, carried

    def _repeats_with(self, owner: ast.AST, later: ast.AST, here: ast.AST | None) -> bool:
        """Whether ``owner`` binds anew, before ``here``, in each turn of the loop that also holds ``later``."""
        loops = [
            loop for loop in self.source.loops(here or owner) if self.source.within(later, loop)
        ]
        return any(owner is loop or self.source.within(owner, loop) for loop in loops[:1])

    def _point(self, scope: Scope, use: ast.AST) -> ast.AST | None:
        """The statement in which ``use`` happens; None when that is inside a function within ``scope``."""
        for up in self.source.ancestors(use):
            if up is scope:
                break
            if isinstance(up, (*FUNCTIONS, ast.ClassDef)):
                return None
        return self.source.statement(use)

    def branches(self, node: ast.AST) -> dict[ast.AST, str]:
        """The conditional statements around ``node`` within its function, each with the arm that holds it."""
        known = self._branches.get(node)
        if known is not None:
            return known
        found: dict[ast.AST, str] = {}
        child = node
        for up in self.source.ancestors(node):
            if isinstance(up, (*FUNCTIONS, ast.ClassDef)):
                break
            if isinstance(up, _BRANCHES):
                arm = _arm(up, child)
                if arm:
                    found[up] = arm
            child = up
        self._branches[node] = found
        return found

    def is_certain(self, binding: Binding, use: ast.AST) -> bool:
        """Whether ``binding`` was certainly made when ``use`` happens, and not under a condition of its own."""
        return not self._conditional(binding, use)

    def _conditional(self, binding: Binding, use: ast.AST) -> bool:
        taken = self.branches(self.source.statement(use))
        return any(node not in taken for node in self.branches(binding.owner))

    def _attributes(self, key: str, use: ast.AST) -> Sequence[Binding]:
        """Bindings of ``self.x`` anywhere in the class that ``use`` is in, or of ``Class.x``."""
        root = root_of(key)
        owner = self.source.class_of(use) if root in {"self", "cls"} else self.classes.get(root)
        if owner is None:
            return ()
        return self._class_attributes.get(owner, {}).get(key.removeprefix(root), ())

    @cached_property
    def classes(self) -> dict[str, ast.ClassDef]:
        """Classes of the file by name."""
        found = self.source.nodes.get(ast.ClassDef, ())
        return {node.name: node for node in found if isinstance(node, ast.ClassDef)}

    @cached_property
    def _class_attributes(self) -> dict[ast.ClassDef, dict[str, list[Binding]]]:
        table: dict[ast.ClassDef, dict[str, list[Binding]]] = defaultdict(lambda: defaultdict(list))
        for scope, by_key in self.bindings.items():
            owner = scope if isinstance(scope, ast.ClassDef) else self.source.class_of(scope)
            if owner is None:
                continue
            for key, bound in by_key.items():
                if isinstance(scope, ast.ClassDef):
                    table[owner]["." + key].extend(bound)
                elif key.startswith("self."):
                    table[owner][key.removeprefix("self")].extend(bound)
        return table


def _arm(node: ast.AST, child: ast.AST) -> str:
    if isinstance(node, ast.If):
        return "body" if child in node.body else "orelse" if child in node.orelse else ""
    if isinstance(node, ast.Try):
        # What the body did is done when a handler or the rest runs: only handlers are alternatives.
        return f"handler {node.handlers.index(child)}" if child in node.handlers else ""
    if isinstance(node, ast.Match):
        return f"case {node.cases.index(child)}" if child in node.cases else ""
    return ""


def ends_function(node: ast.AST, arm: str) -> bool:
    """Whether an arm of a conditional statement ends in ``return`` or ``raise``."""
    return isinstance(_last(node, arm), (ast.Return, ast.Raise))


def _ends_in_jump(node: ast.AST, arm: str) -> bool:
    return isinstance(_last(node, arm), _JUMPS)


def _last(node: ast.AST, arm: str) -> ast.stmt | None:
    """The last statement of an arm."""
    block: list[ast.stmt] = []
    if isinstance(node, ast.If):
        block = node.body if arm == "body" else node.orelse
    elif isinstance(node, ast.Try):
        block = node.handlers[int(arm.split()[1])].body
    elif isinstance(node, ast.Match):
        block = node.cases[int(arm.split()[1])].body
    return block[-1] if block else None
