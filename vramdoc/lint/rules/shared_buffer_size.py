"""VD103: a shared-memory buffer whose size is given in elements where bytes are counted."""

from __future__ import annotations

import ast
from collections.abc import Iterator

from vramdoc.lint.bindings import Role
from vramdoc.lint.finding import Finding, at
from vramdoc.lint.literals import number
from vramdoc.lint.rule import Example, Rule
from vramdoc.lint.source import Source, argument, receiver
from vramdoc.lint.violation import Level

RULE = Rule(
    id="VD103",
    name="shared-buffer-in-elements",
    title="shared buffer sized in elements instead of bytes",
    level=Level.ERROR,
    why="""
    `UntypedStorage._new_shared(n)` counts bytes; the `storage()` of older releases counted elements. A collate function carried over
    makes a buffer four or eight times too small, and `torch.stack(batch, out=...)` must grow shared memory, which torch refuses: "Trying to resize
    storage that is not resizable", in a DataLoader worker, even when all samples are equal (bytedance/HLLM#27).
    """,
    instead="Multiply by `elem.element_size()`, or use `elem._typed_storage()._new_shared(numel)` as torch's own default_collate does.",
    bad=(
        Example(
            code="""
import torch


def collate(batch):
    elem = batch[0]
    out = None
    if torch.utils.data.get_worker_info() is not None:
        numel = sum(x.numel() for x in batch)
        storage = elem.untyped_storage()._new_shared(numel, device=elem.device)
        out = elem.new(storage).resize_(len(batch), *elem.size())  # VD103
    return torch.stack(batch, 0, out=out)  # VD103
"""
        ),
    ),
    good=(
        Example(
            code="""
import torch


def collate(batch):
    elem = batch[0]
    out = None
    if torch.utils.data.get_worker_info() is not None:
        numel = sum(x.numel() for x in batch)
        storage = elem.untyped_storage()._new_shared(numel * elem.element_size())
        out = elem.new(storage).resize_(len(batch), *elem.size())
    return torch.stack(batch, 0, out=out)
"""
        ),
    ),
    words=("_new_shared",),
)
_BYTES = frozenset({"element_size", "itemsize", "nbytes", "_element_size", "nbytes_per_elem"})


@RULE.on_call("resize_")
def check_resize(source: Source, call: ast.Call) -> Iterator[Finding]:
    """``elem.new(storage).resize_(...)``."""
    target = receiver(call)
    if target is not None and (made := _too_small(source, target)) is not None:
        yield at(call, _message(made))


@RULE.on_node(ast.keyword)
def check_out(source: Source, node: ast.AST) -> Iterator[Finding]:
    """``torch.stack(batch, out=elem.new(storage))``."""
    if not isinstance(node, ast.keyword) or node.arg != "out":
        return
    call, made = source.parents[node], _too_small(source, node.value)
    if made is not None and isinstance(call, ast.Call):
        yield at(call, _message(made))


def _message(made: ast.Call) -> str:
    return (
        f"the shared buffer (line {made.lineno}) is sized in elements, but an untyped storage counts bytes: it is too small, "
        "and shared memory cannot grow; multiply by element_size()"
    )


def _too_small(source: Source, node: ast.AST, depth: int = 6) -> ast.Call | None:
    """The ``_new_shared`` call behind ``node`` whose argument counts elements."""
    for origin in source.flow.origins(node):
        call = origin.node
        if origin.role is not Role.VALUE or not isinstance(call, ast.Call) or depth == 0:
            continue
        name = getattr(call.func, "attr", "")
        if name == "_new_shared":
            size = argument(call, "size", 0)
            if size is not None and _is_untyped(source, call) and _counts_elements(source, size):
                return call
        inner: list[ast.AST] = [*call.args] if name in {"new", "tensor", "set_"} else []
        target = receiver(call)
        if target is not None and name in {"resize_", "view", "set_"}:
            inner.append(target)
        for value in inner:
            found = _too_small(source, value, depth - 1)
            if found is not None:
                return found
    return None


def _is_untyped(source: Source, call: ast.Call) -> bool:
    if source.qualname(call.func) == "torch.UntypedStorage._new_shared":
        return True
    target = receiver(call)
    return target is not None and any(
        isinstance(o.node, ast.Call) and getattr(o.node.func, "attr", "") == "untyped_storage"
        for o in source.flow.origins(target)
    )


def _counts_elements(source: Source, size: ast.AST) -> bool:
    """Whether the size is made of element counts (numel, len, prod of a shape) and nothing that turns them into bytes."""
    names: set[str] = set()
    for origin in source.flow.origins(size):
        for node in ast.walk(origin.node):
            if isinstance(node, ast.Attribute):
                names.add(node.attr)
            elif isinstance(node, ast.Name):
                names.add(node.id)
                names.update(_inner_names(source, node))
            elif isinstance(node, ast.BinOp) and _scales(source, node):
                return False
    return not names & _BYTES and bool(names & {"numel", "nelement", "prod", "shape", "size"})


def _scales(source: Source, node: ast.BinOp) -> bool:
    """``numel * 4``: the size of an element, written as a number."""
    return isinstance(node.op, (ast.Mult, ast.LShift)) and any(
        number(source, factor) is not None for factor in (node.left, node.right)
    )


def _inner_names(source: Source, name: ast.Name) -> set[str]:
    return {
        node.attr
        for origin in source.flow.origins(name)
        for node in ast.walk(origin.node)
        if isinstance(node, ast.Attribute)
    }
