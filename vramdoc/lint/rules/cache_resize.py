"""VD102: ``resize_`` on a KV cache."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator

from vramdoc.lint import growth
from vramdoc.lint.bindings import key_of
from vramdoc.lint.finding import Finding, at
from vramdoc.lint.rule import Example, Rule
from vramdoc.lint.shapes import dimensions
from vramdoc.lint.source import Source, receiver
from vramdoc.lint.storage import Owner, Storage, storages
from vramdoc.lint.violation import Level

RULE = Rule(
    id="VD102",
    name="cache-resize",
    title="resize_ on a KV cache",
    level=Level.WARNING,
    why="""
    `resize_` reinterprets the bytes in a new shape; it inserts no rows. Called on a `[batch, heads, length, dim]` cache with two sizes it
    silently makes a two-dimensional tensor of what is there, and with more elements than before it scrambles heads and positions. On
    the caches of transformers it is an AttributeError.
    """,
    instead="Allocate the cache once for the longest context and write by index, or use the cache classes of transformers.",
    bad=(
        Example(
            code="""
def grow(past_key_values, new_len, head_dim):
    past_key_values.resize_(new_len, head_dim)  # VD102
"""
        ),
        Example(
            code="""
import torch


class Attention:
    def __init__(self, heads):
        self.k_cache = torch.zeros(1, heads, 128, 64)

    def grow(self, heads, length):
        self.k_cache.resize_(1, heads, length, 64)  # VD102
"""
        ),
    ),
    good=(
        Example(
            code="""
import torch

cache = torch.empty(0)
cache.resize_(16)
"""
        ),
    ),
    words=("resize_",),
)
CACHE_NAME = re.compile(
    r"past_key_values|(^|_)(kv|k|v|key|value)s?_?(cache|states)$|^(kv|past)(_|$)|(^|_)kv_?cache"
)


@RULE.on_call("resize_")
def check(source: Source, call: ast.Call) -> Iterator[Finding]:
    """Receivers that are a cache by name, and of several dimensions as far as the file tells."""
    target = receiver(call)
    key = key_of(target) if target is not None else None
    sizes = dimensions(source, call.args)
    if len(sizes) == 1 and isinstance(sizes[0], (ast.Call, ast.BinOp, ast.Constant)):
        return  # a flat buffer, without positions and heads
    if target is None or key is None or not any(map(_names_a_cache, growth.roots(source, target))):
        return
    if all(_holds_rows(source, call, storage) for storage in storages(source, target)):
        yield at(
            call,
            f"resize_ on {key} keeps the bytes and changes the shape: positions and heads no longer match",
        )


def _names_a_cache(key: str) -> bool:
    return CACHE_NAME.search(key.partition("[")[0].rpartition(".")[2]) is not None


def _holds_rows(source: Source, call: ast.Call, storage: Storage) -> bool:
    """Whether the cache has heads and positions to lose: nothing is known of it, or it was made with three dimensions and more."""
    if storage.owner is Owner.UNKNOWN:
        return True
    made = storage.root
    sizes = dimensions(source, made.args) if isinstance(made, ast.Call) else []
    return storage.owner is Owner.TORCH and len(sizes) > _FLAT and len(call.args) > 1


_FLAT = 2
"""Dimensions of a table: one more row at its end moves nothing."""
