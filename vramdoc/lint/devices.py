"""Which expressions mean a CUDA device, and which calls make torch start its allocator there.

The calls of ``STARTERS`` were tried one by one with torch 2.14.1 on the virtual GPU: after each, PYTORCH_CUDA_ALLOC_CONF was set
and a tensor made, and torch._C._accelerator_getAllocatorSettings() told whether the variable still counted.
"""

from __future__ import annotations

import ast
import re
from typing import TYPE_CHECKING

from vramdoc.lint.bindings import Role
from vramdoc.lint.literals import texts
from vramdoc.lint.source import argument, receiver

if TYPE_CHECKING:
    from vramdoc.lint.source import Source

STARTERS = frozenset(
    f"torch.cuda.{name}"
    for name in (
        "init", "set_device", "get_device_name", "get_device_properties", "get_device_capability", "current_device",
        "mem_get_info", "set_per_process_memory_fraction", "memory.set_per_process_memory_fraction", "synchronize",
        "reset_peak_memory_stats", "is_bf16_supported", "memory_summary", "memory._record_memory_history",
        "current_blas_handle", "current_stream",
    )
)  # fmt: skip
"""is_available, device_count, manual_seed, empty_cache, memory_allocated, memory_stats, Event, Stream, torch.device, set_default_device,
GradScaler and autocast were tried too and leave the allocator unstarted."""
ENGINES = frozenset({"vllm.LLM", "vllm.AsyncLLMEngine.from_engine_args", "sglang.Engine"})


def cuda(source: Source, node: ast.AST | None) -> bool | None:
    """Whether an expression may be a CUDA device; None where nothing tells."""
    if node is None:
        return None
    answers: list[bool | None] = [
        _cuda_origin(source, origin.node) if origin.role is Role.VALUE else None
        for origin in source.flow.origins(node)
    ]
    if any(answers):
        return True
    return None if None in answers or not answers else False


def _cuda_origin(source: Source, node: ast.AST) -> bool | None:
    if isinstance(node, ast.Constant):
        if isinstance(node.value, str):
            return node.value.startswith("cuda")
        # A bare integer is a CUDA ordinal to .to(), .cuda() and device=; a bool or None is no device at all.
        return isinstance(node.value, int) and not isinstance(node.value, bool)
    if isinstance(node, (ast.JoinedStr, ast.BinOp)):
        known = texts(source, node)
        return any(text.startswith("cuda") for text in known) if known else None
    if isinstance(node, ast.Call):
        name = source.qualname(node.func)
        if name == "torch.device":
            return cuda(source, argument(node, "type", 0) or argument(node, "device", 0))
        if name == "torch.cuda.current_device":
            return True
    return None


def names_current_device(source: Source, node: ast.AST) -> bool:
    """Whether an expression is ``"cuda"`` or ``torch.device("cuda")``: the current device, whichever that is."""
    for origin in source.flow.origins(node):
        made = origin.node
        if isinstance(made, ast.Call) and source.qualname(made.func) == "torch.device":
            made = made.args[0] if len(made.args) == 1 else made
        if isinstance(made, ast.Constant) and made.value == "cuda":
            return True
    return False


def names_first_device(source: Source, node: ast.AST | None) -> bool:
    """Whether an expression is the first CUDA device, written out: ``"cuda:0"``, ``0``, ``torch.device("cuda", 0)``."""
    if node is None:
        return False
    origins = source.flow.origins(node)
    return bool(origins) and all(
        origin.role is Role.VALUE and _first_device(source, origin.node) for origin in origins
    )


def _first_device(source: Source, node: ast.AST) -> bool:
    if isinstance(node, ast.Constant):
        return node.value == "cuda:0" or (node.value == 0 and not isinstance(node.value, bool))
    if isinstance(node, ast.Call) and source.qualname(node.func) == "torch.device":
        if len(node.args) == 2:
            return names_first_device(source, node.args[1])
        return bool(node.args) and names_first_device(source, node.args[0])
    return False


_CUDA_TENSOR = re.compile(r"torch\.cuda\.\w+Tensor$")
_MAKES = re.compile(
    r"torch\.(zeros|ones|empty|full|rand|randn|randint|arange|linspace|eye|tensor|nn\.[A-Z]\w*)(_like)?$"
)


def makes_tensor(source: Source, call: ast.Call) -> bool:
    """Whether ``call`` makes a tensor or module on the default device."""
    return (
        argument(call, "device") is None
        and _MAKES.match(source.qualname(call.func) or "") is not None
    )


def starts_cuda(source: Source, call: ast.Call) -> bool:
    """Whether ``call`` certainly uses a CUDA device, so that the allocator has read its settings afterwards."""
    name = source.qualname(call.func) or ""
    if name in STARTERS or name in ENGINES or _CUDA_TENSOR.match(name):
        return True
    method = call.func.attr if isinstance(call.func, ast.Attribute) else ""
    if method == "cuda" and receiver(call) is not None and not name.startswith("torch."):
        return True
    if method == "prepare" and _is_accelerator(source, receiver(call)):
        return True
    if method == "to" and call.args:
        return _device_argument(source, call.args[0]) or bool(
            cuda(source, argument(call, "device"))
        )
    if name == "torch.device" or method in {
        "set_default_device",
        "Event",
        "Stream",
        "Generator",
        "autocast",
    }:
        return False
    return any(
        _device_argument(source, argument(call, keyword))
        for keyword in ("device", "device_map", "map_location")
    )


def _is_accelerator(source: Source, node: ast.AST | None) -> bool:
    """Whether ``node`` is an Accelerator of accelerate: its ``prepare`` moves the model to the GPU."""
    return node is not None and any(
        isinstance(o.node, ast.Call) and source.qualname(o.node.func) == "accelerate.Accelerator"
        for o in source.flow.origins(node)
    )


def _device_argument(source: Source, node: ast.AST | None) -> bool:
    if isinstance(node, ast.Constant) and node.value in {"auto", "balanced", "sequential"}:
        return True  # device_map=: spreads over the GPUs there are
    return bool(cuda(source, node))
