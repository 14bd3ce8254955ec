"""VD502: every rank of a distributed job loading onto the first GPU."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator

from vramdoc.lint.devices import cuda, names_current_device, names_first_device
from vramdoc.lint.finding import Finding, at
from vramdoc.lint.rule import Example, Rule
from vramdoc.lint.source import Source, argument, last_name, receiver
from vramdoc.lint.violation import Level

RULE = Rule(
    id="VD502",
    name="every-rank-on-first-device",
    title="every rank uses the first GPU",
    level=Level.WARNING,
    why="""
    `torch.load` puts tensors back on the device they were saved from, mostly cuda:0, and each rank of a job runs the same line: GPU 0 holds a copy
    and a CUDA context for every rank and runs out first. "cuda" without a number is the current device, which is 0 until
    `torch.cuda.set_device(local_rank)`.
    """,
    instead='Load with `map_location="cpu"` or `f"cuda:{local_rank}"`, and call `torch.cuda.set_device(local_rank)` first.',
    bad=(
        Example(
            code="""
import torch
import torch.distributed as dist


def main(rank, path):
    dist.init_process_group("nccl", rank=rank)
    torch.cuda.set_device(rank)
    state = torch.load(path)  # VD502
    return state
"""
        ),
        Example(
            code="""
import os
import torch
from safetensors.torch import load_file

rank = int(os.environ["LOCAL_RANK"])
weights = load_file("model.safetensors", device="cuda:0")  # VD502
net = torch.nn.Linear(8, 8).cuda()  # VD502
"""
        ),
    ),
    good=(
        Example(
            code="""
import os
import torch
import torch.distributed as dist

rank = int(os.environ["LOCAL_RANK"])
torch.cuda.set_device(rank)
dist.init_process_group("nccl")
state = torch.load("model.pt", map_location="cpu")
other = torch.load("other.pt", map_location=f"cuda:{rank}")
net = torch.nn.Linear(8, 8).cuda()
if rank == 0:
    torch.zeros(1, device="cuda:0")
"""
        ),
    ),
    words=(
        "init_process_group",
        "LOCAL_RANK",
        "local_rank",
        "DistributedDataParallel",
        "init_device_mesh",
        "spawn",
    ),
    limits="Only files that set up a distributed job themselves. Without `set_device` the first unnumbered `.cuda()` is reported, not each.",
)
_LOADERS = frozenset({"torch.load", "safetensors.torch.load_file", "torch.jit.load"})
_RANK = re.compile(r"rank|is_main|is_master|main_process", re.IGNORECASE)


@RULE.on_source
def check(source: Source) -> Iterator[Finding]:
    """Loads and moves to the first device in a file that runs on many ranks."""
    if not _is_distributed(source):
        return
    chosen = _chooses_device(source)
    reported_unnumbered = False
    told: set[ast.AST | None] = set()
    """Functions in which the first use of GPU 0 was reported."""
    for call in source.nodes.get(ast.Call, ()):
        assert isinstance(call, ast.Call)
        if _for_one_rank(source, call):
            continue
        where = _where(source, call)
        if source.qualname(call.func) in _LOADERS:
            message = _load_message(source, call, where, chosen=chosen)
            if message:
                yield at(call, message)
        elif (
            where is not None
            and names_first_device(source, where)
            and source.function(call) not in told
        ):
            told.add(source.function(call))
            yield at(call, "every rank of the job uses GPU 0 here; use the local rank's device")
        elif not chosen and not reported_unnumbered and _unnumbered(source, call, where):
            reported_unnumbered = True
            yield at(
                call,
                "no torch.cuda.set_device(local_rank) in this file: the current device is GPU 0 on every rank",
            )


def _is_distributed(source: Source) -> bool:
    """Whether the file joins a process group, wraps a model for one, or starts its ranks itself."""
    if "torch" not in source.imported_modules:
        return False
    joins = source.calls_named("init_process_group", "DistributedDataParallel", "init_device_mesh")
    starts = (source.qualname(call.func) for call in source.calls_named("spawn"))
    if next(joins, None) is not None or "torch.multiprocessing.spawn" in starts:
        return True
    constants = source.nodes.get(ast.Constant, ())
    return any(isinstance(n, ast.Constant) and n.value == "LOCAL_RANK" for n in constants)


def _chooses_device(source: Source) -> bool:
    """Whether the rank's device is made the current one, or CUDA_VISIBLE_DEVICES leaves only one."""
    if any(
        not names_first_device(source, argument(c, "device", 0))
        for c in source.calls_named("set_device", "set_device_index")
    ):
        return True
    if any(
        isinstance(item.context_expr, ast.Call)
        and source.qualname(item.context_expr.func) == "torch.cuda.device"
        for w in source.nodes.get(ast.With, ())
        if isinstance(w, ast.With)
        for item in w.items
    ):
        return True
    return (
        any(
            isinstance(node, ast.Constant) and node.value == "CUDA_VISIBLE_DEVICES"
            for node in source.nodes.get(ast.Constant, ())
        )
        or "accelerate" in source.imported_modules
        or "deepspeed" in source.imported_modules
    )


def _where(source: Source, call: ast.Call) -> ast.expr | None:
    """The device that a call names."""
    name = last_name(call.func)
    if source.qualname(call.func) in {"torch.device", "torch.cuda.set_device"}:
        return None
    for keyword in ("map_location", "device", "device_map"):
        found = argument(call, keyword)
        if found is not None:
            return found
    if source.qualname(call.func) in _LOADERS:
        return argument(call, "map_location", 1)
    if name in {"to", "cuda"} and receiver(call) is not None and call.args:
        return call.args[0] if cuda(source, call.args[0]) else None
    return None


def _load_message(source: Source, call: ast.Call, where: ast.expr | None, *, chosen: bool) -> str:
    if where is None:
        if source.qualname(call.func) != "torch.load":
            return ""
        return 'without map_location each rank loads onto the device the file was saved from, mostly GPU 0; pass map_location="cpu"'
    if names_first_device(source, where):
        return "every rank loads onto GPU 0; load to the CPU or to the local rank's device"
    if not chosen and names_current_device(source, where):
        return '"cuda" is GPU 0 on every rank until torch.cuda.set_device(local_rank); load to the CPU or to the rank\'s device'
    return ""


def _unnumbered(source: Source, call: ast.Call, where: ast.expr | None) -> bool:
    """``.cuda()``, ``.to("cuda")``, ``device="cuda"``."""
    if where is None:
        bare = not call.args and not call.keywords
        return last_name(call.func) == "cuda" and receiver(call) is not None and bare
    return names_current_device(source, where)


def _for_one_rank(source: Source, call: ast.AST) -> bool:
    """Under ``if rank == 0`` and the like."""
    for up in source.ancestors(call):
        if isinstance(up, (ast.If, ast.IfExp)):
            names = " ".join(
                n.id if isinstance(n, ast.Name) else n.attr
                for n in ast.walk(up.test)
                if isinstance(n, (ast.Name, ast.Attribute))
            )
            if _RANK.search(names):
                return True
    return False
