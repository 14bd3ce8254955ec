"""VD201: a KV cache made longer by ``torch.cat`` with every token."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator

from vramdoc.lint import growth
from vramdoc.lint.bindings import Role, key_of, root_of
from vramdoc.lint.finding import Finding, at
from vramdoc.lint.rule import Example, Rule
from vramdoc.lint.source import DEFINITIONS, Source, last_name
from vramdoc.lint.violation import Level

RULE = Rule(
    id="VD201",
    name="cache-grown-by-cat",
    title="KV cache grown by torch.cat in a loop",
    level=Level.WARNING,
    why="""
    Each step allocates a cache that is one token longer, copies the old one and frees it: old and new live together, and as sizes never
    repeat, freed blocks fit nothing that follows. A decode of 8,192 tokens of Llama-3-8B shapes reserves about twice the bytes that are live
    (replayed), and copies grow with the square of the length (huggingface/transformers PR #30536).
    """,
    instead="""
    Allocate the cache once for the longest context and write by index (`StaticCache` in transformers), or grow in steps of 256 tokens.
    """,
    bad=(
        Example(
            code="""
import torch


def decode(layers, x, steps):
    keys = [None] * len(layers)
    for _ in range(steps):
        for i, layer in enumerate(layers):
            k = layer.project(x)
            keys[i] = k if keys[i] is None else torch.cat([keys[i], k], dim=2)  # VD201
            x = layer.attend(x, keys[i])
    return x
"""
        ),
        Example(
            code="""
from torch import cat as join


class Cache:
    def update(self, k, v):
        self.k_cache = join((self.k_cache, k), -2)  # VD201
        return self.k_cache
"""
        ),
        Example(
            code="""
import torch as t


def generate(model, ids, past):
    while ids.shape[1] < 4096:
        new = model.step(ids, past)
        past = tuple((t.cat([pk, k], 2), pv) for (pk, pv), k in zip(past, new))  # VD201
"""
        ),
        Example(
            code="""
import torch


class Attention(torch.nn.Module):
    def forward(self, x, layer_past=None):
        q, k, v = self.qkv(x).chunk(3, -1)
        if layer_past is not None:
            past_key, past_value = layer_past
            k = torch.cat([past_key, k], dim=-2)  # VD201
            v = torch.cat([past_value, v], dim=-2)  # VD201
        return self.attend(q, k, v), (k, v)
"""
        ),
    ),
    good=(
        Example(
            code="""
import torch


def decode(model, ids, cache, steps):
    for pos in range(steps):
        next_id = model(ids[:, -1:], cache, pos).argmax(-1)
        ids = torch.cat([ids, next_id], dim=1)
    return ids
"""
        ),
        Example(
            code="""
import torch


def slide(model, x, k_cache, steps):
    for _ in range(steps):
        k_cache = torch.cat([k_cache[:, :, 1:], model.project(x)], dim=2)
        x = model(x, k_cache)
"""
        ),
        Example(
            code="""
import torch


def gather(parts):
    keys = []
    for part in parts:
        keys.append(part.keys)
    return torch.cat(keys, dim=2)
"""
        ),
    ),
    words=("cat", "concat", "concatenate", "hstack", "vstack", "pad"),
    limits="Recognised by the names people give to caches, or by a join along the sequence dimension of four; token ids, masks and logits are left alone, and so is a window of constant length.",
)
_STEP = re.compile(
    r"(^|_)(update|append|push|extend|step|decode|forward|insert|add|write|put|grow|concat)(_|$)|__call__",
    re.IGNORECASE,
)


@RULE.on_call("cat", "concat", "concatenate", "hstack", "vstack", "pad")
def check(source: Source, call: ast.Call) -> Iterator[Finding]:
    """A join whose result goes where its first part came from, once a turn or once a call."""
    if last_name(call.func) == "pad":
        parts = call.args[:1] if source.qualname(call.func) == "torch.nn.functional.pad" else []
    else:
        parts = growth.joined(call) if growth.is_join(source, call) else []
    if not parts or growth.drops_first(call):
        return
    grown = _grown(source, call, parts)
    if grown is None or not _repeats(source, call, grown):
        grown = _carrier(source, call, parts)
    if grown is not None and not growth.adds_a_chunk(source, parts):
        key = key_of(grown) or last_name(grown)
        yield at(
            call,
            f"{key} grows by a copy with every step: old and new cache live together and freed blocks never fit again; "
            "allocate it once and write by index",
        )


def _grown(source: Source, call: ast.Call, parts: list[ast.expr]) -> ast.expr | None:
    """The variable that the join makes longer, if it is a cache."""
    origin = set().union(*(growth.roots(source, part) for part in parts))
    adds = len(parts) > 1 or isinstance(parts[0], ast.Starred) or last_name(call.func) == "pad"
    for target in growth.targets(source, call) if adds else ():
        own = growth.roots(source, target, depth=0)
        indirect = _stored_later(source, target)
        if not (own | indirect) & origin:
            continue
        names = {last_name(target), *map(_last, indirect), *(last_name(part) for part in parts[:1])}
        names |= _entries(target)
        if any(map(growth.names_a_cache, names)) or _has_twin(source, call):
            return target
        if _is_pair(source, call) and not any(map(growth.names_no_cache, names)):
            return target
    return _handed_back(source, call, parts) or _collected(source, call, parts)


def _carrier(source: Source, call: ast.Call, parts: list[ast.expr]) -> ast.expr | None:
    """What hands the old part out and gets the joined one back: ``past`` in ``pk, pv = past; k = cat([pk, k]); past = k, v``.

    Within a loop, or as a parameter of a step: what a forward pass takes in and returns longer, the next one takes in.
    """
    targets = growth.targets(source, call)
    named = any(growth.names_a_cache(last_name(target)) for target in targets)
    if len(parts) < 2 or not (named or _has_twin(source, call)):
        return None
    function = source.function(call)
    back = set().union(*(_stored_later(source, target) for target in targets))
    returned = _is_step(function) and any(_comes_back(source, target, back) for target in targets)
    for holder in growth.holders(source, parts[0]):
        stored = key_of(holder) in back and _repeats(source, call, holder)
        if stored or (returned and _is_past(source, function, holder)):
            return holder
    return None


def _is_step(function: ast.AST | None) -> bool:
    return isinstance(function, DEFINITIONS) and _STEP.search(function.name) is not None


def _comes_back(source: Source, target: ast.expr, stored: set[str]) -> bool:
    """Whether the function returns the target, or what it was stored in."""
    function = source.function(target)
    wanted = stored | {key_of(target)}
    return isinstance(function, DEFINITIONS) and any(
        key_of(value) in wanted
        for returned in source.flow.returned(function)
        for value in _elements(returned)
    )


_PAST = re.compile(r"(^|_)(past|cache|kv)(_|$)", re.IGNORECASE)


def _handed_back(source: Source, call: ast.Call, parts: list[ast.expr]) -> ast.expr | None:
    """``return torch.cat([cache, new])``: the parameter that comes back longer."""
    function = source.function(call)
    returned = isinstance(source.statement(call), ast.Return)
    if function is None or not returned or len(parts) < 2:
        return None
    for part in parts[:1]:
        is_parameter = isinstance(part, ast.Name) and source.flow.parameter(function, part.id)
        named = growth.names_a_cache(last_name(part)) or growth.along_sequence(source, call)
        if is_parameter and named and not growth.names_no_cache(last_name(part)):
            return part
    return None


def _has_twin(source: Source, call: ast.Call) -> bool:
    """Whether a variable of the other half's name is joined in the same function: ``history_k`` and ``history_v``."""
    own = {key for t in growth.targets(source, call) if (key := key_of(t)) is not None}
    twins = {growth.twin(key) for key in own} - own
    function = source.function(call)
    return any(
        source.function(other) is function
        and growth.is_join(source, other)
        and not twins.isdisjoint(key_of(t) for t in growth.targets(source, other))
        for other in (source.calls_named(*growth.JOINS) if twins else ())
    )


def _is_pair(source: Source, call: ast.Call) -> bool:
    """Whether another variable of the same function is joined along the sequence too: keys and values come in pairs."""
    if not growth.along_sequence(source, call):
        return False
    function, own = source.function(call), {key_of(t) for t in growth.targets(source, call)}
    return any(
        other is not call
        and source.function(other) is function
        and growth.is_join(source, other)
        and growth.along_sequence(source, other)
        and own.isdisjoint(key_of(t) for t in growth.targets(source, other))
        for other in source.calls_named(*growth.JOINS)
    )


def _entries(node: ast.AST) -> set[str]:
    """Names of the entries that a target is: ``past`` of ``state["past"]``."""
    found: set[str] = set()
    while isinstance(node, (ast.Subscript, ast.Attribute)):
        index = node.slice if isinstance(node, ast.Subscript) else None
        if isinstance(index, ast.Constant) and isinstance(index.value, str):
            found.add(index.value)
        node = node.value
    return found


def _last(key: str) -> str:
    return key.partition("[")[0].rpartition(".")[2]


def _stored_later(source: Source, target: ast.expr) -> set[str]:
    """Where a local result is stored afterwards: ``new = cat([self.k, k]); self.k = new``, ``past = (k, v)``."""
    key = key_of(target)
    function = source.function(target)
    return {
        stored
        for node in source.nodes.get(ast.Assign, ())
        if isinstance(node, ast.Assign) and key is not None
        for place, value in _paired(node)
        if key in map(key_of, _elements(value)) and source.function(node) is function
        for stored in growth.roots(source, place, depth=0)
    }


def _paired(node: ast.Assign) -> Iterator[tuple[ast.expr, ast.expr]]:
    """Targets with what they get; a tuple assigned to a tuple is taken apart."""
    for target in node.targets:
        if isinstance(target, ast.Tuple) and isinstance(node.value, ast.Tuple):
            yield from zip(target.elts, node.value.elts)  # noqa: B905 - source may be wrong
        else:
            yield target, node.value


def _elements(node: ast.expr) -> Iterator[ast.expr]:
    """An expression, and what a tuple or condition in it holds: ``k`` and ``v`` of ``(k, v) if use_cache else None``."""
    yield node
    inner = [node.body, node.orelse] if isinstance(node, ast.IfExp) else getattr(node, "elts", ())
    for element in inner:
        yield from _elements(element)


def _collected(source: Source, call: ast.Call, parts: list[ast.expr]) -> ast.expr | None:
    """``keys.append(k); full = torch.cat(keys, dim=2)``: a list that grows in the same loop, joined anew each turn."""
    if len(parts) != 1 or not isinstance(parts[0], (ast.Name, ast.Attribute, ast.Subscript)):
        return None
    key = key_of(parts[0])
    loop = next(source.loops(call), None)
    if loop is None or key is None or not growth.names_a_cache(last_name(parts[0])):
        return None
    made_inside = any(
        binding.role is Role.VALUE and source.within(binding.owner, loop)
        for binding in source.flow.reaching(parts[0])
    )
    appended = any(
        isinstance(other.func, ast.Attribute)
        and key_of(other.func.value) == key
        and source.within(other, loop)
        for other in source.calls_named("append")
    )
    return parts[0] if appended and not made_inside else None


def _repeats(source: Source, call: ast.Call, grown: ast.expr) -> bool:
    """In a loop that does not start the variable afresh, or in a method that is called once a step."""
    results = {key_of(target) for target in growth.targets(source, call)}
    loops = () if isinstance(source.statement(call), ast.Return) else source.loops(call)
    for loop in loops:
        fresh = any(
            not binding.augmented
            and source.within(binding.owner, loop)
            and (binding.owner is loop or not source.within(call, binding.owner))
            and not _joins(source, binding.value, results - {binding.key})
            and source.flow.is_certain(binding, grown)
            for binding in source.flow.reaching(grown)
        )
        if not fresh:
            return True
    function = source.function(call)
    if not isinstance(function, DEFINITIONS):
        return False
    key = key_of(grown) or ""
    if key.startswith("self."):
        return _is_step(function)
    # Into something that was handed in, by a function that a loop calls or whose name says that it runs once a step.
    handed = source.flow.parameter(function, root_of(key)) is not None
    kept = isinstance(grown, (ast.Attribute, ast.Subscript)) and handed
    looped = any(next(source.loops(site), None) for site in source.flow.call_sites(function))
    past = _is_step(function) and _is_past(
        source, function, list(growth.holders(source, grown))[-1]
    )
    return (kept and (looped or past)) or _passed_through(source, function)


def _is_past(source: Source, function: ast.AST | None, node: ast.AST) -> bool:
    """Whether an expression is a parameter that is a cache by its name or its annotation."""
    if function is None or not isinstance(node, ast.Name):
        return False
    parameter = source.flow.parameter(function, node.id)
    if parameter is None:
        return False
    annotation = source.qualname(parameter.annotation) if parameter.annotation else None
    return _PAST.search(parameter.arg) is not None or (annotation or "").endswith("Cache")


def _joins(source: Source, value: ast.AST | None, results: set[str | None]) -> bool:
    """Whether a value holds a join, or the result of this one."""
    return value is not None and any(
        growth.is_join(source, node) if isinstance(node, ast.Call) else key_of(node) in results
        for node in ast.walk(value)
        if isinstance(node, (ast.Call, ast.Name))
    )


def _passed_through(source: Source, function: ast.FunctionDef | ast.AsyncFunctionDef) -> bool:
    """Whether the function hands the longer cache back to a loop that passes it in again."""
    return any(
        isinstance(parent := source.parents[site], ast.Assign)
        and next(source.loops(site), None) is not None
        and {key_of(t) for target in parent.targets for t in getattr(target, "elts", [target])}
        & {key_of(a) for a in site.args}
        for site in source.flow.call_sites(function)
    )
