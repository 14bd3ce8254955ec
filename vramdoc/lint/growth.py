"""Tensors that a loop makes longer turn by turn, and the names that say a tensor is a KV cache."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from typing import TYPE_CHECKING

from vramdoc.lint.bindings import Role, key_of, root_of
from vramdoc.lint.literals import number
from vramdoc.lint.source import COMPREHENSIONS, argument, last_name

if TYPE_CHECKING:
    from vramdoc.lint.source import Source

JOINS = ("cat", "concat", "concatenate")
_SIDE_JOINS = ("hstack", "vstack", "dstack")
_CACHE = re.compile(
    r"^(all_|full_|cached_|new_|self_|old_|layer_|prev_|cur_|p|past_?)?(k|v|kv|ks|vs|keys?|vals?|values?)(_?(cache|buf|buffer|states?|all|full|past|prev|i|out|new))?s?$"
    r"|^[kv]c$|^c[kv]$|past|(^|_)kv(_|$)|kv_?cache|(^|_)(key|value|k|v)_?(cache|states)|(^|_)cache[sd]?(_|$)",
    re.IGNORECASE,
)
_OTHER = re.compile(
    r"(^|_)(ids?|tokens?|inputs?|outputs?|sequences?|masks?|labels?|preds?|predictions?|logits|positions?|text|generated|embeddings?|losses|videos?|frames?|latents?|images?|pixels?|audios?|waveforms?|history)(_|$)",
    re.IGNORECASE,
)


def names_a_cache(name: str) -> bool:
    """Whether an identifier is one that people give to cached keys and values."""
    return _CACHE.search(name) is not None and _OTHER.search(name) is None


def names_no_cache(name: str) -> bool:
    """Whether an identifier says that the tensor is something else: token ids, masks, logits."""
    return _OTHER.search(name) is not None


def twin(name: str) -> str:
    """The name that the values have where the keys have this one, and the other way round; the name itself where it is neither."""
    return _TWIN.sub(lambda part: _OTHER_HALF[part[0].lower()], name)


_OTHER_HALF = {
    "key": "value",
    "value": "key",
    "keys": "values",
    "values": "keys",
    "k": "v",
    "v": "k",
}
_TWIN = re.compile(r"(?<![^\W_])(keys?|values?|[kv])(?![^\W_])", re.IGNORECASE)


def drops_first(call: ast.Call) -> bool:
    """Whether the first part is a rest, ``cache[:, :, 1:]``: a window that moves, of constant length."""
    parts = joined(call)
    index = parts[0].slice if parts and isinstance(parts[0], ast.Subscript) else None
    places = index.elts if isinstance(index, ast.Tuple) else [index]
    return any(isinstance(place, ast.Slice) and place.lower is not None for place in places)


ALLOCATORS = frozenset({
    "zeros", "empty", "full", "ones", "new_zeros", "new_empty", "new_full", "zeros_like", "empty_like",
})  # fmt: skip
"""Functions and methods that make a tensor of a given size, to be written into."""


def adds_a_chunk(source: Source, parts: list[ast.expr]) -> bool:
    """Whether what is joined on is room to be written into: a cache that grows a chunk at a time, as it should."""
    added = [origin.node for part in parts[1:] for origin in source.flow.origins(part)]
    return bool(added) and all(
        isinstance(node, ast.Call) and last_name(node.func) in ALLOCATORS for node in added
    )


def joined(call: ast.Call) -> list[ast.expr]:
    """What torch.cat and its like put together."""
    tensors = argument(call, "tensors", 0)
    if isinstance(tensors, (ast.List, ast.Tuple)):
        return list(tensors.elts)
    return [] if tensors is None else [tensors]


def is_join(source: Source, call: ast.Call) -> bool:
    """Whether ``call`` is torch.cat under any of its names."""
    name = source.qualname(call.func) or ""
    module, _, function = name.rpartition(".")
    return module in {"torch", "torch.ops.aten"} and function in (*JOINS, *_SIDE_JOINS)


def along_sequence(source: Source, call: ast.Call) -> bool:
    """Whether the join is along dimension 2 or -2: the sequence in ``[batch, heads, length, dim]``."""
    return number(source, argument(call, "dim", 1) or argument(call, "axis")) in {2, -2}


def roots(source: Source, node: ast.AST, depth: int = 4) -> set[str]:
    """Variables that an expression is, or is taken out of: ``past`` for ``k`` in ``for k, v in past``."""
    key = key_of(node)
    if key is None:
        inner = node.value if isinstance(node, (ast.Subscript, ast.Attribute)) else None
        return roots(source, inner, depth) if inner is not None else set()
    found = {key, root_of(key) if not key.startswith("self.") else key.partition("[")[0]}
    if depth == 0:
        return found
    reaching = source.flow.reaching(node)
    if isinstance(node, ast.Subscript) and not reaching:
        found |= roots(source, node.value, depth - 1)
    for binding in reaching:
        if binding.role in {Role.ITEM, Role.PART} and binding.value is not None:
            for value in _iterated(binding.value):
                found |= roots(source, value, depth - 1)
        elif binding.role is Role.VALUE and isinstance(
            binding.value, (ast.Subscript, ast.Name, ast.Attribute)
        ):
            found |= roots(source, binding.value, depth - 1)
    return found


def holders(source: Source, node: ast.AST, depth: int = 6) -> Iterator[ast.expr]:
    """An expression and what it is taken out of, outward: ``k``, then ``past`` for ``k, v = past``."""
    if depth == 0 or not isinstance(node, (ast.Name, ast.Attribute, ast.Subscript)):
        return
    yield node
    if isinstance(node, (ast.Attribute, ast.Subscript)):
        yield from holders(source, node.value, depth - 1)
    for binding in source.flow.reaching(node):
        if binding.role in {Role.ITEM, Role.PART, Role.VALUE} and binding.value is not None:
            for value in _iterated(binding.value):
                yield from holders(source, value, depth - 1)


def _iterated(node: ast.AST) -> Iterator[ast.AST]:
    """What ``zip``, ``enumerate`` and ``reversed`` go through."""
    if isinstance(node, ast.Call) and last_name(node.func) in {
        "zip",
        "enumerate",
        "reversed",
        "list",
        "tuple",
        "items",
        "values",
    }:
        for value in node.args:
            yield from _iterated(value)
        if isinstance(node.func, ast.Attribute):
            yield node.func.value
    else:
        yield node


def targets(source: Source, call: ast.AST) -> list[ast.expr]:
    """Variables that receive the value of ``call``: directly, through methods, or within a display or comprehension."""
    child: ast.AST = call
    for up in source.ancestors(call):
        if isinstance(up, ast.Assign):
            return [t for target in up.targets for t in getattr(target, "elts", [target])]
        if isinstance(up, (ast.AnnAssign, ast.NamedExpr)):
            return [up.target]
        if isinstance(up, ast.Call):
            if last_name(up.func) == "append" and isinstance(up.func, ast.Attribute):
                return [up.func.value]
            if child is not up.func and last_name(up.func) not in _WRAPPERS:
                return []
        elif not isinstance(up, _DISPLAYS):
            return []
        child = up
    return []


_WRAPPERS = frozenset({"tuple", "list", "triu", "tril"})
_DISPLAYS = (
    ast.Tuple, ast.List, ast.Dict, ast.IfExp, ast.Attribute, ast.keyword, ast.BinOp, ast.UnaryOp, *COMPREHENSIONS,
)  # fmt: skip
