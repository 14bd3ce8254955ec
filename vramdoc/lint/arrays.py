"""Which expressions are certainly NumPy arrays: torch takes those over without a copy."""

from __future__ import annotations

import ast
from typing import TYPE_CHECKING

from vramdoc.lint.source import receiver

if TYPE_CHECKING:
    from vramdoc.lint.bindings import Origin
    from vramdoc.lint.source import Source


def from_numpy(source: Source, node: ast.AST) -> bool:
    """Whether an expression is certainly a NumPy array."""
    origins = source.flow.origins(node)
    return bool(origins) and all(_is_array(source, origin) for origin in origins)


def _is_array(source: Source, origin: Origin) -> bool:
    node = origin.node
    if isinstance(node, ast.Subscript):
        read = not isinstance(node.slice, ast.Constant) and _is_dataset(source, node.value)
        return read or from_numpy(source, node.value)
    if isinstance(node, ast.Attribute):
        return node.attr == "values" and "pandas" in source.imported_modules
    if not isinstance(node, ast.Call):
        return False
    if (source.qualname(node.func) or "").startswith("numpy."):
        return True
    target = receiver(node)
    method = node.func.attr if isinstance(node.func, ast.Attribute) else ""
    if method in {"numpy", "to_numpy"}:
        return True
    return (
        target is not None
        and method in {"astype", "reshape", "copy", "ravel"}
        and from_numpy(source, target)
    )


def _is_dataset(source: Source, node: ast.AST) -> bool:
    """Whether ``node`` is a data set of an HDF5 file, of which a slice is an array."""
    if isinstance(node, ast.Subscript):
        node = node.value
    origins = source.flow.origins(node)
    return bool(origins) and all(
        isinstance(o.node, ast.Call) and source.qualname(o.node.func) == "h5py.File"
        for o in origins
    )
