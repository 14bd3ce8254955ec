"""Requests that the text itself shows: ``torch.randn(30000, 30000)`` needs 3,600,000,000 bytes. Estimated from the source lines, never executed.

It reads integer assignments and the sizes in calls of torch's factory functions, and knows nothing else of Python.
"""

from __future__ import annotations

import ast
from collections.abc import Iterable, Iterator
from math import prod

from vramdoc.evidence.case import Case
from vramdoc.facts import Fact, Source

_FACTORIES = frozenset({"empty", "zeros", "ones", "rand", "randn", "full"})
_BYTES = {
    "float64": 8, "double": 8, "int64": 8, "long": 8, "complex64": 8, "complex128": 16, "float32": 4, "float": 4, "int32": 4,
    "int": 4, "float16": 2, "half": 2, "bfloat16": 2, "int16": 2, "short": 2, "int8": 1, "uint8": 1, "bool": 1,
}  # fmt: skip
_MOST = 8


def visible_requests(case: Case) -> tuple[Fact, ...]:
    """Sizes of tensors that visible program lines make, each with its line."""
    if case.crash is None:
        return ()
    return tuple(requests_in([*case.crash.code, *case.crash.source_lines]))[:_MOST]


def requests_in(lines: Iterable[str]) -> Iterator[Fact]:
    """Yield one fact a call whose size is plain."""
    known: dict[str, int] = {}
    for line in lines:
        try:
            tree = ast.parse(line)
        except (SyntaxError, ValueError, RecursionError, MemoryError):
            continue  # half a statement: a traceback shows single lines
        for node in ast.walk(tree):
            if (
                isinstance(node, ast.Assign)
                and isinstance(node.targets[0], ast.Name)
                and isinstance(value := _number(node.value, known), int)
            ):
                known[node.targets[0].id] = value
            if isinstance(node, ast.Call) and (factors := _factors(node, known)):
                shape = " x ".join(map(str, factors))
                yield Fact(
                    "visible_request", prod(factors), "bytes", Source.ESTIMATED, f"{line} ({shape})"
                )


def _factors(call: ast.Call, known: dict[str, int]) -> list[int]:
    """The sizes of a factory call and the bytes of an element; empty where one of them is not plain."""
    function = call.func
    if not (
        isinstance(function, ast.Attribute)
        and function.attr in _FACTORIES
        and isinstance(function.value, ast.Name)
        and function.value.id == "torch"
    ):
        return []
    arguments = call.args[:1] if function.attr == "full" else call.args
    if len(arguments) == 1 and isinstance(arguments[0], (ast.Tuple, ast.List)):
        arguments = list(arguments[0].elts)
    sizes = [_number(argument, known) for argument in arguments]
    plain = [size for size in sizes if size is not None]
    return [*plain, _width(call)] if plain and len(plain) == len(sizes) else []


def _width(call: ast.Call) -> int:
    """Bytes an element; float32 is torch's default."""
    for keyword in call.keywords:
        if keyword.arg == "dtype":
            return _BYTES.get(ast.unparse(keyword.value).removeprefix("torch."), 4)
    return 4


def _number(node: ast.expr, known: dict[str, int]) -> int | None:
    if isinstance(node, ast.Constant) and isinstance(node.value, int):
        return node.value
    if isinstance(node, ast.Name):
        return known.get(node.id)
    if isinstance(node, ast.BinOp) and isinstance(node.op, ast.Mult):
        left, right = _number(node.left, known), _number(node.right, known)
        return None if left is None or right is None else left * right
    return None
