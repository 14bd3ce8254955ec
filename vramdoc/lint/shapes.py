"""The shape of a tensor or array, where the file says it in numbers; None where any dimension is not known."""

from __future__ import annotations

import ast
import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, TypeAlias

from vramdoc.lint.bindings import Role
from vramdoc.lint.literals import number
from vramdoc.lint.source import argument, receiver

if TYPE_CHECKING:
    from vramdoc.lint.source import Source

Shape: TypeAlias = tuple[int, ...]
_SIZED = frozenset({"zeros", "ones", "empty", "rand", "randn", "ndarray"})
"""Takes a shape, or (torch) its dimensions one by one."""
_ITEMSIZES = {
    "float64": 8, "double": 8, "int64": 8, "long": 8, "float32": 4, "float": 4, "int32": 4, "int": 4, "float16": 2, "half": 2,
    "bfloat16": 2, "int16": 2, "short": 2, "int8": 1, "uint8": 1, "bool": 1,
}  # fmt: skip
_KEEP = frozenset({
    "astype", "detach", "clone", "copy", "float", "half", "double", "bfloat16", "int", "long", "cpu", "cuda", "to", "share_memory_", "contiguous",
    "pin_memory", "requires_grad_",
})  # fmt: skip
"""Methods whose result has the shape of what they are called on."""
_FROM_DATA = frozenset({"from_numpy", "as_tensor", "asarray", "array", "tensor"})
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
    sizes = _numbers(source, nodes)
    return None if sizes is None else math.prod(sizes)


def numel(source: Source, node: ast.AST) -> int | None:
    """Elements of what ``node`` makes."""
    found = shape(source, node)
    return None if found is None else math.prod(found)


def shape(source: Source, node: ast.AST) -> Shape | None:
    """The shape of what ``node`` makes."""
    origins = source.flow.origins(node)
    if len(origins) != 1 or origins[0].role is not Role.VALUE:
        return None
    return _shape(source, origins[0].node)


def result_numel(source: Source, call: ast.Call) -> int | None:
    """Elements of what a torch function returns, given the shapes of what it is given."""
    name = (source.qualname(call.func) or "").rpartition(".")[2]
    if name in JOINS and call.args:
        sizes = [numel(source, tensor) for tensor in _joined(source, call.args[0])]
        return None if None in sizes or not sizes else sum(size or 0 for size in sizes)
    shapes = [shape(source, operand) for operand in call.args]
    known = [found for found in shapes if found is not None]
    if name in _PRODUCTS and len(known) == len(shapes) == 2:
        result = _PRODUCTS[name](*known)
    elif name in _ELEMENTWISE and known:
        result = _broadcast(known)
    else:
        result = _shape(source, call)
    return None if result is None else math.prod(result)


def _numbers(source: Source, nodes: Sequence[ast.expr]) -> Shape | None:
    sizes = [number(source, node) for node in nodes]
    if not sizes or any(size is None or size != int(size) or size < 0 for size in sizes):
        return None
    return tuple(int(size or 0) for size in sizes)


def _shape(source: Source, node: ast.AST) -> Shape | None:
    if isinstance(node, (ast.List, ast.Tuple)):
        return _nested(source, node)
    if not isinstance(node, ast.Call):
        return None
    module, _, name = (source.qualname(node.func) or "").rpartition(".")
    if module not in {"torch", "numpy"}:
        return _of_method(source, node)
    if name in _SIZED or name == "full":
        written = argument(node, "size") or argument(node, "shape")
        takes_one = name == "full" or module == "numpy"
        sizes = [written] if written is not None else node.args[: 1 if takes_one else None]
        return _numbers(source, dimensions(source, sizes))
    if name in {"arange", "randperm"}:
        return _arange(source, node)
    if name == "memmap":
        written = argument(node, "shape", 4)
        return None if written is None else _numbers(source, dimensions(source, [written]))
    if name == "from_file":
        size = argument(node, "size", 2)
        return None if size is None else _numbers(source, [size])
    if name == "frombuffer":
        return _buffer(source, node)
    if name in _FROM_DATA and node.args:
        return shape(source, node.args[0])
    return None


def _nested(source: Source, node: ast.List | ast.Tuple) -> Shape | None:
    """``[[1, 2], [3, 4]]``: (2, 2)."""
    if any(isinstance(element, ast.Starred) for element in node.elts):
        return None
    inner = [
        _nested(source, element) if isinstance(element, (ast.List, ast.Tuple)) else ()
        for element in node.elts
    ]
    same = all(row == inner[0] and row is not None for row in inner)
    return (len(inner), *(inner[0] or ())) if inner and same else None


def _of_method(source: Source, call: ast.Call) -> Shape | None:
    target, method = receiver(call), getattr(call.func, "attr", "")
    if target is None:
        return None
    if method in _KEEP:
        return shape(source, target)
    # Only the number of elements is certain behind a view with a -1 in it.
    if method in {"reshape", "view", "flatten", "ravel"}:
        size = numel(source, target)
        return None if size is None else _numbers(source, dimensions(source, call.args)) or (size,)
    return None


def _arange(source: Source, call: ast.Call) -> Shape | None:
    bounds = [number(source, bound) for bound in call.args]
    if None in bounds or not 1 <= len(bounds) <= 3:
        return None
    start, end = (0, bounds[0]) if len(bounds) == 1 else bounds[:2]
    step = bounds[2] if len(bounds) == 3 else 1
    if start is None or end is None or not step:
        return None
    return (max(0, math.ceil((end - start) / step)),)


def _buffer(source: Source, call: ast.Call) -> Shape | None:
    """torch.frombuffer(bytearray(64), dtype=torch.float32): (16,)."""
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
            return None if size is None or itemsize is None else (int(size) // itemsize,)
    return None


def _joined(source: Source, tensors: ast.expr) -> Iterator[ast.expr]:
    """The tensors that torch.cat is given, one by one; nothing where they cannot be counted."""
    for origin in source.flow.origins(tensors):
        node = origin.node
        if isinstance(node, (ast.List, ast.Tuple)):
            yield from node.elts
        elif isinstance(node, (ast.ListComp, ast.GeneratorExp)) and len(node.generators) == 1:
            yield from [node.elt] * min(_turns(source, node.generators[0]), _MOST_JOINED)


def _turns(source: Source, loop: ast.comprehension) -> int:
    """Turns of ``for _ in range(n)``; 0 where they are not known."""
    turns = loop.iter
    if loop.ifs or not isinstance(turns, ast.Call) or source.qualname(turns.func) != "range":
        return 0
    counted = _arange(source, turns)
    return counted[0] if counted else 0


_MOST_JOINED = 4096
"""Equal tensors counted one by one: more is a benchmark, which joins nothing into a foreign buffer."""


def _broadcast(shapes: Sequence[Shape]) -> Shape | None:
    """torch.broadcast_shapes; None where they do not go together."""
    result: list[int] = []
    for place in range(1, max(map(len, shapes)) + 1):
        sizes = {found[-place] for found in shapes if place <= len(found)} - {1}
        if len(sizes) > 1:
            return None
        result.append(sizes.pop() if sizes else 1)
    return tuple(reversed(result))


def _matrix_product(one: Shape, other: Shape) -> Shape | None:
    """torch.matmul of matrices and batches of them."""
    if len(one) < 2 or len(other) < 2:
        return None
    batch = _broadcast([one[:-2] or (1,), other[:-2] or (1,)])
    return None if batch is None else (*batch, one[-2], other[-1])


def _outer(one: Shape, other: Shape) -> Shape | None:
    return (*one, *other)


_PRODUCTS: Mapping[str, Callable[[Shape, Shape], Shape | None]] = {
    "mm": _matrix_product,
    "bmm": _matrix_product,
    "matmul": _matrix_product,
    "outer": _outer,
}
