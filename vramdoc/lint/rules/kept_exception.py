"""VD303: exception objects kept, with every tensor of the frames in their tracebacks."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator

from vramdoc.lint.devices import starts_cuda
from vramdoc.lint.finding import Finding, at
from vramdoc.lint.gradients import is_forward, is_module
from vramdoc.lint.rule import Example, Rule
from vramdoc.lint.source import DEFINITIONS, Source, last_name
from vramdoc.lint.violation import Level

_TORCH = frozenset(
    {"torch", "transformers", "diffusers", "accelerate", "vllm", "lightning", "pytorch_lightning"}
)

RULE = Rule(
    id="VD303",
    name="exception-kept",
    title="exception object kept, or work retried inside its handler",
    level=Level.WARNING,
    why="""
    An exception holds its traceback, the traceback the frames, and the frames every local tensor of the failed call. Stored in a list or a variable
    it keeps them all alive; `empty_cache` cannot return what is still referenced. Inside the `except` block the interpreter holds the
    exception too, so a retry there runs with the memory of the failed attempt still taken (PyTorch FAQ, "My out of memory exception handler
    can't allocate memory").
    """,
    instead="Keep `str(e)` or `traceback.format_exc()`; set a flag in the handler and retry after it has ended.",
    bad=(
        Example(
            code="""
import torch


def sweep(net, batches):
    failures = []
    for batch in batches:
        try:
            net(batch)
        except RuntimeError as e:
            failures.append((batch, e))  # VD303
    return failures
"""
        ),
        Example(
            code="""
import torch


def run(net, batch):
    try:
        return net(batch)
    except torch.cuda.OutOfMemoryError:
        torch.cuda.empty_cache()
        return net(batch[: len(batch) // 2])  # VD303
"""
        ),
    ),
    good=(
        Example(
            code="""
import torch


def sweep(net, batches):
    failures = []
    for batch in batches:
        too_big = False
        try:
            net(batch)
        except torch.cuda.OutOfMemoryError as e:
            failures.append(str(e))
            too_big = True
        if too_big:
            torch.cuda.empty_cache()
            net(batch[: len(batch) // 2])
    return failures
"""
        ),
    ),
    words=tuple(sorted(_TORCH)),
    pattern=re.compile(
        r"except\b(?:.*\bas \w+|.*OutOfMemory\w+\)?|.*\n.*exc_info|.*\n.*\n.*exc_info)"
    ),
    limits="Only in files that import torch or a library on top of it, and only broad or GPU-related exception types.",
)
_BROAD = frozenset(
    {"Exception", "BaseException", "RuntimeError", "OutOfMemoryError", "AcceleratorError"}
)
_MEMORY = frozenset({"OutOfMemoryError"})
_STORES = frozenset({"append", "appendleft", "add", "insert", "put", "extend", "setdefault"})


@RULE.on_node(ast.ExceptHandler)
def check(source: Source, node: ast.AST) -> Iterator[Finding]:
    """Handlers that let their exception out, and OOM handlers that try again."""
    assert isinstance(node, ast.ExceptHandler)
    if not source.imported_modules & _TORCH:
        return
    kinds = _kinds(node)
    if (not kinds or kinds & _BROAD) and (_about_memory(node, kinds) or _computes(source, node)):
        yield from _kept(source, node, about_memory=_about_memory(node, kinds))
    if _about_memory(node, kinds):
        yield from _retried(source, node)


def _computes(source: Source, handler: ast.ExceptHandler) -> bool:
    """Whether the ``try`` block works with tensors: a module called or handed on, a backward pass, something moved to a GPU."""
    attempt = source.parents[handler]
    assert isinstance(attempt, ast.Try)
    return any(
        isinstance(node, ast.Call)
        and (
            last_name(node.func) in _TENSOR_WORK
            or is_forward(source, node)
            or starts_cuda(source, node)
            or any(is_module(source, value) for value in node.args)
        )
        for statement in attempt.body
        for node in ast.walk(statement)
    )


_TENSOR_WORK = frozenset(
    {"backward", "generate", "cuda", "forward", "train_step", "training_step", "from_pretrained"}
)


def _kinds(handler: ast.ExceptHandler) -> set[str]:
    types = (
        handler.type.elts
        if isinstance(handler.type, ast.Tuple)
        else [handler.type]
        if handler.type
        else []
    )
    return {last_name(kind) for kind in types}


def _about_memory(handler: ast.ExceptHandler, kinds: set[str]) -> bool:
    return bool(kinds & _MEMORY) or any(
        isinstance(n, ast.Constant)
        and isinstance(n.value, str)
        and "out of memory" in n.value.lower()
        for n in ast.walk(handler)
    )


def _kept(source: Source, handler: ast.ExceptHandler, *, about_memory: bool) -> Iterator[Finding]:
    repeated = next(source.loops(handler), None) is not None
    for statement in handler.body:
        for node in ast.walk(statement):
            if isinstance(node, ast.Call) and last_name(node.func) in _STORES:
                values, kept = [*node.args], getattr(node.func, "value", None)
                lasting = repeated or about_memory or _is_shared(source, kept)
            elif isinstance(node, ast.Assign):
                values = [node.value]
                lasting = (repeated and about_memory) or (
                    (repeated or about_memory) and any(_lasts(source, t) for t in node.targets)
                )
            else:
                continue
            if lasting and any(_holds(value, handler.name) for value in values):
                yield at(
                    node,
                    "the exception keeps its traceback and so every tensor of the frames it passed through; "
                    "keep its text (str, traceback.format_exc) instead",
                )


def _is_shared(source: Source, container: ast.AST | None) -> bool:
    """Whether a container outlives the call: an attribute, or a variable of the module that a function fills."""
    if isinstance(container, ast.Name):
        return source.function(container) is not None and not source.flow.is_local(container)
    return isinstance(container, ast.Attribute)


def _lasts(source: Source, target: ast.expr) -> bool:
    """Whether an assignment outlives the function: an attribute, an entry, a global."""
    if isinstance(target, ast.Name):
        function = source.function(target)
        return function is not None and source.flow.is_global(target.id, function)
    return isinstance(target, (ast.Attribute, ast.Subscript))


def _holds(value: ast.AST, name: str | None) -> bool:
    """Whether a value is, or contains, the exception or its traceback; what a call makes of it does not count."""
    if isinstance(value, ast.Name):
        return name is not None and value.id == name
    if isinstance(value, ast.Attribute):
        return value.attr in {"__traceback__", "tb_frame"} and _holds(value.value, name)
    if isinstance(value, ast.Call):
        return last_name(value.func) == "exc_info"
    if isinstance(value, (ast.Tuple, ast.List, ast.Set)):
        return any(_holds(element, name) for element in value.elts)
    if isinstance(value, ast.Dict):
        return any(_holds(element, name) for element in value.values)
    return False


def _retried(source: Source, handler: ast.ExceptHandler) -> Iterator[Finding]:
    """Calls in the handler of what the ``try`` block called, or of the function around it."""
    attempt = source.parents[handler]
    assert isinstance(attempt, ast.Try)
    tried = {
        name
        for statement in attempt.body
        for node in ast.walk(statement)
        if isinstance(node, ast.Call) and (name := _callee(node)) not in _SMALL
    }
    function = source.function(handler)
    if isinstance(function, DEFINITIONS):  # embed(batch) again, on half of it
        tried.add(function.name)
    for statement in handler.body:
        for node in ast.walk(statement):
            if isinstance(node, ast.Call) and _callee(node) in tried:
                yield at(
                    node,
                    "retried inside the except block, while the exception still holds the failed attempt's tensors; "
                    "set a flag and retry after the block",
                )
                return


_SMALL = frozenset({
    "", "print", "len", "str", "int", "float", "range", "isinstance", "getattr", "list", "dict", "tuple", "empty_cache", "synchronize", "collect",
    "append", "info", "warning", "debug", "error", "exception", "format", "join", "memory_allocated", "memory_reserved", "mem_get_info", "time",
    "perf_counter", "item", "get", "update", "close", "zero_grad", "max", "min", "sum", "cpu", "detach",
})  # fmt: skip


_ASKS = re.compile(r"^_*(is|has|get|set|log|check)(_|$)")
"""First words of functions that ask or tell something and compute nothing large: ``is_cpu``, ``log_failure``."""


def _callee(call: ast.Call) -> str:
    name = last_name(call.func) if isinstance(call.func, (ast.Name, ast.Attribute)) else ""
    return "" if name in _SMALL or _ASKS.search(name) else name
