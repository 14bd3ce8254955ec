"""VD304: a dense float32 attention mask over batch and heads."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator

from vramdoc.lint.bindings import key_of
from vramdoc.lint.finding import Finding, at
from vramdoc.lint.growth import targets
from vramdoc.lint.literals import number
from vramdoc.lint.rule import Example, Rule
from vramdoc.lint.shapes import dimensions
from vramdoc.lint.source import Source, argument, last_name
from vramdoc.lint.violation import Level

_MASK = re.compile(r"mask|bias|causal", re.IGNORECASE)

RULE = Rule(
    id="VD304",
    name="dense-float-mask",
    title="float32 attention mask expanded over batch and heads",
    level=Level.WARNING,
    why="""
    A `[batch, heads, length, length]` mask in float32 takes 4 x B x H x L x L bytes: 4 GiB for one sequence of 8,192 tokens and 16 heads, before a
    cast makes a second copy. A causal mask needs no memory at all, and any mask may be broadcast over batch and heads.
    """,
    instead="Use `is_causal=True`, or a boolean `[1, 1, L, L]` mask.",
    bad=(
        Example(
            code="""
import torch
import torch.nn.functional as F


def attend(q, k, v, length):
    batch, heads = q.shape[:2]
    mask = torch.full((batch, heads, length, length), float("-inf"), device=q.device)  # VD304
    return F.scaled_dot_product_attention(q, k, v, attn_mask=torch.triu(mask, diagonal=1))
"""
        ),
    ),
    good=(
        Example(
            code="""
import torch
import torch.nn.functional as F


def attend(q, k, v, length):
    mask = torch.full((length, length), float("-inf"), device=q.device, dtype=q.dtype)
    wide = torch.ones(1, 1, length, length, dtype=torch.bool)
    return F.scaled_dot_product_attention(q, k, v, is_causal=True)
"""
        ),
    ),
    words=("scaled_dot_product_attention", "triu", "tril", "finfo", "inf"),
    names=_MASK,
    pattern=re.compile(r"(?:full|zeros|ones|empty|repeat|contiguous|clone)\("),
)
_FAR_BELOW = -1e3
"""Scores are of the order of ten; what is added to switch a place off is far below: -1e4, -1e9."""
_FACTORIES = frozenset({"torch.full", "torch.zeros", "torch.ones", "torch.empty"})
_SPREADS = frozenset({"repeat", "contiguous", "clone"})


@RULE.on_call("full", "zeros", "ones", "empty")
def check_made(source: Source, call: ast.Call) -> Iterator[Finding]:
    """``torch.full((B, H, L, L), -inf)`` without a narrower dtype."""
    if source.qualname(call.func) not in _FACTORIES or not _is_float32(source, call):
        return
    sizes = _sizes(source, call)
    if len(sizes) not in {3, 4} or not _same(sizes[-2], sizes[-1]) or _is_one(sizes[-1]):
        return
    folded = (
        len(sizes) == 3 and isinstance(sizes[0], ast.BinOp) and isinstance(sizes[0].op, ast.Mult)
    )
    spread = folded or (len(sizes) == 4 and not _broadcasts(sizes[:2]))
    if spread and _is_mask(source, call):
        yield at(
            call,
            "a dense float32 mask over batch and heads: 4 x B x H x L x L bytes; use is_causal=True or a boolean mask that broadcasts",
        )


def _sizes(source: Source, call: ast.Call) -> list[ast.expr]:
    """The dimensions; ``q.shape[:2] + (L, L)`` counts as four."""
    shape = argument(call, "size")
    first = call.args[:1] if last_name(call.func) == "full" else list(call.args)
    sizes = dimensions(source, [shape] if shape is not None else first)
    if (
        len(sizes) == 1
        and isinstance(sizes[0], ast.BinOp)
        and isinstance(sizes[0].right, ast.Tuple)
    ):
        left = sizes[0].left
        upper = (
            left.slice.upper
            if isinstance(left, ast.Subscript) and isinstance(left.slice, ast.Slice)
            else None
        )
        if isinstance(upper, ast.Constant) and upper.value == 2:
            return [left, left, *sizes[0].right.elts]
    return sizes


@RULE.on_call("repeat", "contiguous", "clone")
def check_spread(source: Source, call: ast.Call) -> Iterator[Finding]:  # noqa: ARG001 - the same everywhere
    """``mask.expand(B, H, -1, -1).contiguous()`` and ``mask.repeat(B, H, 1, 1)``: the view becomes memory."""
    target = call.func.value if isinstance(call.func, ast.Attribute) else None
    if last_name(call.func) == "repeat":
        spread = (
            target is not None
            and len(call.args) == 4
            and not _broadcasts(call.args[:2])
            and all(map(_is_one, call.args[2:]))
        )
    else:
        spread = (
            isinstance(target, ast.Call)
            and last_name(target.func) == "expand"
            and len(target.args) == 4
            and not _broadcasts(target.args[:2])
        )
    if (
        spread
        and target is not None
        and _MASK.search(
            last_name(
                target.func.value
                if isinstance(target, ast.Call) and isinstance(target.func, ast.Attribute)
                else target
            )
        )
    ):
        yield at(
            call,
            "the mask is copied for every head of every sequence: 4 x B x H x L x L bytes in float32; leave it to broadcasting",
        )


def _is_float32(source: Source, call: ast.Call) -> bool:
    dtype = argument(call, "dtype")
    return dtype is None or source.qualname(dtype) in {"torch.float32", "torch.float"}


def _same(one: ast.expr, other: ast.expr) -> bool:
    return ast.dump(one) == ast.dump(other)


def _broadcasts(sizes: list[ast.expr]) -> bool:
    """Whether batch or heads stay 1, or (``expand``) as they are: then the mask is not spread over both."""
    return any(_is_one(size) or isinstance(size, ast.UnaryOp) for size in sizes)


def _is_one(node: ast.expr) -> bool:
    return isinstance(node, ast.Constant) and node.value == 1


def _is_mask(source: Source, call: ast.Call) -> bool:
    """By what it is filled with, by its name, or by where it is passed."""
    filled = call.args[1] if last_name(call.func) == "full" and len(call.args) > 1 else None
    value = number(source, filled)
    if value is not None and value < _FAR_BELOW:
        return True
    if filled is not None and any(
        (isinstance(n, ast.Constant) and n.value in {"-inf", "inf"})
        or (isinstance(n, ast.Attribute) and n.attr in {"inf", "min"})
        for n in ast.walk(filled)
    ):
        return True
    if any(_MASK.search(key_of(target) or "") for target in targets(source, call)):
        return True
    return any(
        (isinstance(up, ast.keyword) and up.arg == "attn_mask")
        or (isinstance(up, ast.Call) and last_name(up.func) in {"tril", "triu"})
        for up in source.ancestors(call)
    )
