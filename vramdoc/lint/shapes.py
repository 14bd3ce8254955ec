"""How many elements a tensor or array has, where the file says so in numbers. Knows no broadcasting and no operator."""

from __future__ import annotations

import ast
import math
from typing import TYPE_CHECKING

from vramdoc.lint.bindings import Role
from vramdoc.lint.literals import number
from vramdoc.lint.source import argument, receiver

if TYPE_CHECKING:
    from vramdoc.lint.source import Source

_SIZED = frozenset({"zeros", "ones", "empty", "rand", "randn", "ndarray"})
"""Takes a shape, or (torch) its dimensions one by one."""
_ITEMSIZES = {
    "float64": 8, "double": 8, "int64": 8, "long": 8, "float32": 4, "float": 4, "int32": 4, "int": 4, "float16": 2, "half": 2,
    "bfloat16": 2, "int16": 2, "short": 2, "int8": 1, "uint8": 1, "bool": 1,
}  # fmt: skip

_KEEP_SIZE = frozenset({
    "astype", "reshape", "view", "detach", "clone", "copy", "float", "half", "cpu", "cuda", "share_memory_",
})  # fmt: skip
JOINS = frozenset({"cat", "concat", "concatenate", "stack", "hstack", "vstack"})
_ELEMENTWISE = frozenset({
    "add", "sub", "mul", "div", "exp", "log", "sqrt", "neg", "abs", "sigmoid", "tanh", "relu", "cumsum", "clamp",
})  # fmt: skip


def dimensions(source: Source, nodes: list[ast.expr]) -> list[ast.expr]:
    """The dimensions that ``f(2, 3)`` or ``f((2, 3))`` names."""
    if len(nodes) == 1:
        for origin in source.flow.origins(nodes[0]):
            if isinstance(origin.node, (ast.Tuple, ast.List)) and origin.role is Role.VALUE:
                return origin.node.elts
    return nodes


def product(source: Source, nodes: list[ast.expr]) -> int | None:
    """The number of elements of a shape; None where a dimension is not a known number."""
    sizes = [number(source, node) for node in nodes]
    if not sizes or any(size is None or size != int(size) for size in sizes):
        return None
    return math.prod(int(size or 0) for size in sizes)


def numel(source: Source, node: ast.AST) -> int | None:
    """Elements of what ``node`` makes."""
    origins = source.flow.origins(node)
    if len(origins) != 1 or origins[0].role is not Role.VALUE:
        return None
    return _numel(source, origins[0].node)


def _numel(source: Source, node: ast.AST) -> int | None:
    if isinstance(node, (ast.List, ast.Tuple)):
        inner = [
            _numel(source, e) if isinstance(e, (ast.List, ast.Tuple)) else 1 for e in node.elts
        ]
        return None if None in inner else sum(size or 0 for size in inner)
    if not isinstance(node, ast.Call):
        return None
    module, _, name = (source.qualname(node.func) or "").rpartition(".")
    if module not in {"torch", "numpy"}:
        target = receiver(node)
        kept = target is not None and getattr(node.func, "attr", "") in _KEEP_SIZE
        return numel(source, target) if target is not None and kept else None
    if name in _SIZED or name == "full":
        shape = argument(node, "size") or argument(node, "shape")
        sizes = (
            [shape] if shape is not None else node.args[:1] if name == "full" else list(node.args)
        )
        if module == "numpy":
            sizes = sizes[:1]
        return product(source, dimensions(source, sizes))
    if name == "arange" and len(node.args) == 1:
        return product(source, node.args)
    if name == "memmap":
        shape = argument(node, "shape", 4)
        return None if shape is None else product(source, dimensions(source, [shape]))
    if name == "from_file":
        size = argument(node, "size", 2)
        return None if size is None else product(source, [size])
    if name == "frombuffer":
        return _buffer(source, node)
    if name in {"from_numpy", "as_tensor", "asarray", "array", "tensor"} and node.args:
        return numel(source, node.args[0])
    return None


def _buffer(source: Source, call: ast.Call) -> int | None:
    """torch.frombuffer(bytearray(64), dtype=torch.float32): 16."""
    dtype = argument(call, "dtype", 1)
    itemsize = (
        _ITEMSIZES.get((source.qualname(dtype) or "").rpartition(".")[2])
        if dtype is not None
        else None
    )
    for origin in source.flow.origins(call.args[0]) if call.args and itemsize else ():
        made = origin.node
        if isinstance(made, ast.Call) and source.qualname(made.func) == "bytearray" and made.args:
            size = number(source, made.args[0])
            return None if size is None or itemsize is None else int(size) // itemsize
    return None


def result_numel(source: Source, call: ast.Call) -> int | None:
    """Elements of what a torch function returns, given the sizes of what it is given."""
    name = (source.qualname(call.func) or "").rpartition(".")[2]
    if name in JOINS and call.args:
        tensors = call.args[0]
        if not isinstance(tensors, (ast.List, ast.Tuple)):
            return None
        sizes = [numel(source, element) for element in tensors.elts]
        return None if None in sizes else sum(size or 0 for size in sizes)
    if name in _ELEMENTWISE and call.args:
        return numel(source, call.args[0])
    return _numel(source, call)
