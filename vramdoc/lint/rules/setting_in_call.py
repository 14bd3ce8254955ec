"""VD007: an environment variable passed to a call as a keyword argument."""

from __future__ import annotations

import ast
from collections.abc import Iterator

from vramdoc.lint.bindings import Role
from vramdoc.lint.finding import Finding, at
from vramdoc.lint.rule import Example, Rule
from vramdoc.lint.settings import VARIABLES
from vramdoc.lint.source import Source, last_name
from vramdoc.lint.timeline import IMPORTS_TORCH
from vramdoc.lint.violation import Level

ENVIRONMENT_ONLY = (
    *VARIABLES,
    "PYTORCH_MPS_HIGH_WATERMARK_RATIO",
    "PYTORCH_MPS_LOW_WATERMARK_RATIO",
    "PYTORCH_ENABLE_MPS_FALLBACK",
    "CUDA_LAUNCH_BLOCKING",
    "CUDA_MODULE_LOADING",
    "CUBLAS_WORKSPACE_CONFIG",
    "CUBLASLT_WORKSPACE_SIZE",
    "CUDA_VISIBLE_DEVICES",
)
"""Variables that torch, CUDA or cuBLAS read from the environment and nowhere else."""

RULE = Rule(
    id="VD007",
    name="setting-in-call",
    title="environment variable passed as a keyword argument",
    level=Level.ERROR,
    why="""
    These names are read from the process's environment only. As an argument they are swallowed by a `**kwargs`, or raise
    "unexpected keyword argument"; no memory setting changes (run-llama/llama_index#8743).
    """,
    instead="Set it in the environment, before torch is imported.",
    bad=(
        Example(
            code="""
from diffusers import StableDiffusionPipeline

pipe = StableDiffusionPipeline.from_pretrained("model-dir").to("mps")
image = pipe("a cat", PYTORCH_MPS_HIGH_WATERMARK_RATIO=0.0).images[0]  # VD007
"""
        ),
        Example(
            code="""
import torch

options = {"PYTORCH_CUDA_ALLOC_CONF": "expandable_segments:True"}
net = torch.nn.Linear(8, 8, **options)  # VD007
"""
        ),
    ),
    good=(
        Example(
            code="""
import os
import subprocess

os.environ.update(PYTORCH_MPS_HIGH_WATERMARK_RATIO="0.0")
subprocess.run(["python", "a.py"], env=dict(os.environ, CUDA_LAUNCH_BLOCKING="1"))
"""
        ),
    ),
    words=ENVIRONMENT_ONLY,
    limits="Calls whose name says that they take environment variables or settings (`env`, `setenv`, `Config`, `Settings`) are left alone.",
)
_TAKES_VARIABLES = (
    "env",
    "dict",
    "update",
    "settings",
    "config",
    "setdefault",
    "secret",
    "override",
    "patch",
    "replace",
    "format",
    "export",
    "namespace",
)


@RULE.on_node(ast.keyword)
def check(source: Source, node: ast.AST) -> Iterator[Finding]:
    """Keywords named like a variable, written out or in a ``**`` dictionary."""
    assert isinstance(node, ast.keyword)
    call = source.parents[node]
    names = [node.arg] if node.arg else _splatted(source, node.value)
    names = [name for name in names if name in ENVIRONMENT_ONLY]
    if not names or not isinstance(call, ast.Call) or _takes_variables(source, call):
        return
    for name in names:
        if not _declares(source, call, name):
            yield at(
                node.value if node.arg else call,
                f"{name} is read from the environment only; as an argument it has no effect or raises",
                _level(source, call),
            )


def _takes_variables(source: Source, call: ast.Call) -> bool:
    name = (source.qualname(call.func) or last_name(call.func)).lower()
    return any(word in name for word in _TAKES_VARIABLES)


def _splatted(source: Source, node: ast.AST) -> list[str]:
    return [
        key.value
        for origin in source.flow.origins(node)
        if isinstance(origin.node, ast.Dict) and origin.role is Role.VALUE
        for key in origin.node.keys
        if isinstance(key, ast.Constant) and isinstance(key.value, str)
    ]


def _declares(source: Source, call: ast.Call, name: str) -> bool:
    """Whether the call goes to a function or class of this file that has such a parameter, or takes any."""
    for function in source.flow.called(call):
        if function.args.kwarg is not None or source.flow.parameter(function, name):
            return True
    return isinstance(call.func, ast.Name) and call.func.id in source.flow.classes


def _level(source: Source, call: ast.Call) -> Level:
    """What an imported function does with the name is its own affair, unless its package is known to read none of these."""
    name = source.qualname(call.func) or ""
    root = call.func
    while isinstance(root, (ast.Attribute, ast.Call, ast.Subscript)):
        root = root.func if isinstance(root, ast.Call) else root.value
    imported = isinstance(root, ast.Name) and root.id in source.imports
    known = name.partition(".")[0] in IMPORTS_TORCH or name.startswith("subprocess.")
    return Level.WARNING if imported and not known else Level.ERROR
