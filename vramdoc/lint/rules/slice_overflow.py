"""VD202: writing past the end of a preallocated cache by a slice, which loses tokens without a word."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator

from vramdoc.lint import growth
from vramdoc.lint.bindings import Role, key_of
from vramdoc.lint.finding import Finding, at
from vramdoc.lint.literals import number
from vramdoc.lint.rule import Example, Rule
from vramdoc.lint.shapes import dimensions
from vramdoc.lint.source import COMPREHENSIONS, Source, argument, last_name
from vramdoc.lint.violation import Level

RULE = Rule(
    id="VD202",
    name="silent-cache-overflow",
    title="slice write to a static cache without a bound check",
    level=Level.WARNING,
    why="""
    `cache[:, :, pos:pos + 1] = new` with `pos` past the end writes into an empty slice: no error, the token is simply not there (tried on
    torch 2.13). Generation goes on and gets worse. `index_copy_` and a plain index would raise.
    """,
    instead="Check `pos + n <= cache.size(dim)` before the write, or write with `index_copy_`.",
    bad=(
        Example(
            code="""
import torch


def decode(model, x, steps):
    k_cache = torch.zeros(1, 8, 1024, 64)
    pos = 0
    for _ in range(steps):
        k = model.project(x)
        k_cache[:, :, pos : pos + 1, :] = k  # VD202
        pos += 1
"""
        ),
        Example(
            code="""
import torch


class StaticCache:
    def __init__(self, length):
        self.keys = torch.empty(1, 8, length, 64)
        self.seen = 0

    def update(self, k):
        n = k.shape[2]
        self.keys[:, :, self.seen : self.seen + n] = k  # VD202
        self.seen += n
"""
        ),
    ),
    good=(
        Example(
            code="""
import torch


class StaticCache:
    def __init__(self, length):
        self.keys = torch.empty(1, 8, length, 64)
        self.seen = 0

    def update(self, k):
        end = self.seen + k.shape[2]
        if end > self.keys.shape[2]:
            raise ValueError("cache is full")
        self.keys[:, :, self.seen : end] = k
        self.seen = end
"""
        ),
        Example(
            code="""
import torch


def decode(model, x, max_len):
    cache = torch.zeros(1, 8, max_len, 64)
    for pos in range(max_len):
        cache[:, :, pos : pos + 1] = model.project(x)
"""
        ),
    ),
    words=tuple(sorted(growth.ALLOCATORS)),
    pattern=re.compile(r"\[[^\[\]\n]*\w *: *\w[^\]\n]*\](?: ?=[^=]|\.copy_\()"),
    limits="Only caches that are allocated in the same function or class, and positions that are counted up there.",
)


@RULE.on_node(ast.Assign)
def check(source: Source, node: ast.AST) -> Iterator[Finding]:
    """Slices ``pos:pos + n`` of a cache, ``pos`` counted up and never compared with anything."""
    assert isinstance(node, ast.Assign)
    for target in node.targets:
        if isinstance(target, ast.Subscript) and growth.names_a_cache(last_name(target.value)):
            yield from _slices(source, node, target)


@RULE.on_call("copy_")
def check_copy(source: Source, call: ast.Call) -> Iterator[Finding]:
    """The same written ``cache[:, :, pos:pos + 1].copy_(new)``."""
    target = call.func.value if isinstance(call.func, ast.Attribute) else None
    if isinstance(target, ast.Subscript) and growth.names_a_cache(last_name(target.value)):
        yield from _slices(source, source.statement(call), target)


def _slices(source: Source, statement: ast.stmt, target: ast.Subscript) -> Iterator[Finding]:
    allocation = _allocation(source, target.value)
    if allocation is None:
        return
    parts = target.slice.elts if isinstance(target.slice, ast.Tuple) else [target.slice]
    ellipsis = next(
        (n for n, part in enumerate(parts) if isinstance(part, ast.Constant) and part.value is ...),
        None,
    )
    for place, part in enumerate(parts):
        position = part.lower if isinstance(part, ast.Slice) else None
        if (
            position is None
            or key_of(position) is None
            or not isinstance(part, ast.Slice)
            or part.upper is None
        ):
            continue
        index = place if ellipsis is None or place < ellipsis else place - len(parts)
        if _counted_up(source, position) and not _bounded(
            source, statement, position, part.upper, _size(source, allocation, index)
        ):
            name = key_of(target.value) or "the cache"
            yield at(
                statement,
                f"nothing checks {key_of(position)} against the length of {name}: past its end this slice is empty and the write is lost silently",
            )


def _allocation(source: Source, cache: ast.expr) -> ast.Call | None:
    """The call that allocated the cache, when every way it comes about is such a call."""
    found: ast.Call | None = None
    for origin in source.flow.origins(cache):
        node = origin.node
        while isinstance(node, ast.Call) and getattr(node.func, "attr", "") in {
            "to",
            "cuda",
            "half",
            "bfloat16",
        }:
            assert isinstance(node.func, ast.Attribute)
            node = node.func.value
        if not isinstance(node, ast.Call) or last_name(node.func) not in growth.ALLOCATORS:
            return None
        found = node
    return found


def _size(source: Source, allocation: ast.Call, index: int) -> ast.expr | None:
    """The expression of the cache's length in the written dimension."""
    shape = argument(allocation, "size")
    sizes = dimensions(source, [shape] if shape is not None else list(allocation.args))
    if last_name(allocation.func) == "full":
        sizes = dimensions(source, allocation.args[:1])
    try:
        return sizes[index]
    except IndexError:
        return None


def _counted_up(source: Source, position: ast.expr) -> bool:
    """Whether the position is a loop's counter, or is added to in the same function or class."""
    if any(b.role is Role.ITEM or b.augmented for b in source.flow.reaching(position)):
        return True
    keys = _names_of(source, position)
    kept = any(key.startswith("self.") for key in keys)
    scope = (source.class_of(position) if kept else source.function(position)) or source.tree
    return any(
        _adds(source, node, keys)
        for kind in (ast.AugAssign, ast.Assign)
        for node in source.nodes.get(kind, ())
        if source.within(node, scope)
    )


def _names_of(source: Source, position: ast.expr) -> set[str]:
    """The position and what it is a plain copy of: ``start`` and ``self.length`` after ``start = self.length``."""
    key = key_of(position)
    copied = {
        key_of(b.value)
        for b in source.flow.reaching(position)
        if b.role is Role.VALUE and b.value is not None
    }
    return {name for name in (key, *copied) if name is not None}


def _adds(source: Source, node: ast.AST, keys: set[str]) -> bool:
    """``pos += n``, ``pos = pos + n``, ``end = pos + n; pos = end``."""
    if isinstance(node, ast.AugAssign):
        return isinstance(node.op, ast.Add) and key_of(node.target) in keys
    if not isinstance(node, ast.Assign) or not any(
        key_of(target) in keys for target in node.targets
    ):
        return False
    return any(
        isinstance(origin.node, ast.BinOp)
        and isinstance(origin.node.op, ast.Add)
        and any(key_of(inner) in keys for inner in ast.walk(origin.node))
        for origin in source.flow.origins(node.value)
    )


def _bounded(
    source: Source, statement: ast.stmt, position: ast.expr, upper: ast.expr, size: ast.expr | None
) -> bool:
    """Whether a loop's range keeps within the size, or anything in the function compares, clamps or wraps the position."""
    if size is not None and _counted_within(source, statement, position, upper, size):
        return True
    keys = {key_of(position), key_of(upper)} - {None}
    keys |= {
        name
        for inner in ast.walk(upper)
        if isinstance(inner, (ast.Name, ast.Attribute)) and (name := key_of(inner)) is not None
    }
    scope = source.function(statement) or source.tree
    return any(_compares(node, keys) for node in ast.walk(scope))


def _counted_within(
    source: Source, statement: ast.stmt, position: ast.expr, upper: ast.expr, size: ast.expr
) -> bool:
    """``for pos in range(n)``, or ``pos`` counted one by one through ``range(n)``, where the size is start and n together."""
    reaching = source.flow.reaching(position)
    for binding in reaching:
        if binding.role is Role.ITEM and isinstance(binding.value, ast.Call):
            return _ends_within(source, binding.value, size, start=None)
    starts = [b.value for b in reaching if b.role is Role.VALUE and not b.augmented]
    by_one = isinstance(upper, ast.BinOp) and number(source, upper.right) == 1
    return by_one and any(
        isinstance(loop, ast.For)
        and isinstance(loop.iter, ast.Call)
        and len(starts) == 1
        and _ends_within(source, loop.iter, size, start=starts[0])
        for loop in source.loops(statement)
    )


def _ends_within(source: Source, loop: ast.Call, size: ast.expr, start: ast.AST | None) -> bool:
    """Whether ``start`` plus the turns of ``range(...)`` are no more than the size."""
    if last_name(loop.func) != "range" or not loop.args:
        return False
    end = loop.args[0] if len(loop.args) == 1 else loop.args[1]
    taken = [end] if start is None or number(source, start) == 0 else [end, start]
    turns, length = [number(source, part) for part in taken], number(source, size)
    if length is not None and None not in turns:
        return sum(turn or 0 for turn in turns) <= length
    rooms = ([ast.dump(addend) for addend in _addends(s)] for s in (size, _written(source, size)))
    return any(all(_takes(room, part) for part in taken) for room in rooms)


def _written(source: Source, node: ast.AST) -> ast.AST:
    """The expression that a variable was given, where it is one: ``total`` for ``total = prompt + new``."""
    origins = source.flow.origins(node)
    sums = [o.node for o in origins if o.role is Role.VALUE and isinstance(o.node, ast.BinOp)]
    return sums[0] if len(sums) == len(origins) == 1 else node


def _addends(node: ast.AST) -> list[ast.AST]:
    """``a`` and ``b`` of ``a + b``."""
    if isinstance(node, ast.BinOp) and isinstance(node.op, ast.Add):
        return [*_addends(node.left), *_addends(node.right)]
    return [node]


def _takes(room: list[str], part: ast.AST) -> bool:
    """Take ``part``, or what ``part`` is a lesser of (``n - 1``, ``n // 2``, ``min(n, m)``), out of ``room``, if it is there."""
    wider = [part]
    if isinstance(part, ast.BinOp) and isinstance(part.op, (ast.Sub, ast.FloorDiv)):
        wider = [part.left]
    elif isinstance(part, ast.Call) and last_name(part.func) == "min":
        wider = [*part.args]
    found = next((dump for dump in map(ast.dump, wider) if dump in room), None)
    if found is not None:
        room.remove(found)
    return found is not None


def _compares(node: ast.AST, keys: set[str | None]) -> bool:
    if isinstance(node, ast.Compare) or (
        isinstance(node, ast.BinOp) and isinstance(node.op, ast.Mod)
    ):
        inside: list[ast.AST] = [node]
    elif isinstance(node, ast.Call) and last_name(node.func) in {
        "min",
        "clamp",
        "clamp_",
        "minimum",
        "_check",
        "check",
        "ensure",
        "reserve",
        "ensure_capacity",
    }:
        inside = list(node.args)
    else:
        return False
    return any(
        key_of(inner) in keys
        for part in inside
        for inner in ast.walk(part)
        if not isinstance(inner, COMPREHENSIONS)
    )
