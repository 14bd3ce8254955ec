"""How the parameters of a module came to be where they are: which call loaded it, and whether something moved them since.

Goes by the variable that holds the module; a module handed on under another name is not followed.
"""

from __future__ import annotations

import ast
from typing import TYPE_CHECKING

from vramdoc.lint.bindings import key_of
from vramdoc.lint.source import argument, receiver

if TYPE_CHECKING:
    from vramdoc.lint.source import Source


def loaded_module(source: Source, module: ast.AST) -> ast.Call | None:
    """The call that loaded the module that ``module`` is, or is part of: for ``net.head`` the one that ``net`` comes from."""
    while isinstance(module, (ast.Attribute, ast.Subscript, ast.Name)):
        made = [o.node for o in source.flow.origins(module) if o.node is not module]
        if len(made) == 1 and isinstance(made[0], ast.Call):
            return made[0]
        if isinstance(module, ast.Name):
            break
        module = module.value
    return None


def left_as_in_file(source: Source, call: ast.Call) -> bool:
    """Whether ``from_pretrained`` leaves the weights on the host and, as far as the call tells, in the dtype of the file (transformers 5.24)."""
    dtype = argument(call, "dtype") or argument(call, "torch_dtype")
    kept = dtype is None or (isinstance(dtype, ast.Constant) and dtype.value == "auto")
    return (
        (source.qualname(call.func) or "").endswith(".from_pretrained")
        and kept
        and argument(call, "device_map") is None
        and argument(call, "quantization_config") is None
    )


def moved(source: Source, module: ast.AST) -> bool:
    """Whether something moves or casts the module in place, which gives it new parameters: ``net.cuda()``."""
    key = key_of(module)
    while key:
        if any(key_of(receiver(call) or call) == key for call in source.calls_named(*_REPLACES)):
            return True
        key = key.rpartition(".")[0]
    return False


_REPLACES = ("cuda", "to", "half", "float", "double", "bfloat16", "to_empty")
