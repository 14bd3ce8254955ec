"""VD101: growing a tensor whose storage torch does not own."""

from __future__ import annotations

import ast
import re
from collections.abc import Callable, Iterator, Sequence

from vramdoc.lint.bindings import key_of
from vramdoc.lint.finding import Finding, at
from vramdoc.lint.literals import number
from vramdoc.lint.rule import Example, Rule
from vramdoc.lint.shapes import JOINS, dimensions, numel, product, result_numel
from vramdoc.lint.source import Source, argument, last_name, receiver
from vramdoc.lint.storage import Owner, Storage, storages
from vramdoc.lint.violation import Level

RULE = Rule(
    id="VD101",
    name="frozen-growth",
    title="growing a tensor whose storage cannot grow",
    level=Level.ERROR,
    why="""
    `resize_` beyond the bytes that are there asks the storage's allocator for more. A storage that came from NumPy, a file, `torch.load`,
    safetensors, DLPack or another process has none: "Trying to resize storage that is not resizable". So has one that was exported
    with `.numpy()` once. The failed call leaves a shape without the bytes behind it, and reading the tensor afterwards can crash
    (pytorch#170298). A tensor moved by `share_memory_()` claims to be resizable and ends in a segmentation fault (torch 2.13 and 2.14).
    Shrinking is allowed, and being a view is no obstacle.
    """,
    instead="Take a copy first (`t = t.clone()`), or allocate the larger tensor and copy into it.",
    bad=(
        Example(
            code="""
import numpy as np
import torch

t = torch.from_numpy(np.zeros(1024, dtype=np.float32))
t.resize_(2048)  # VD101
"""
        ),
        Example(
            code="""
import torch as th
from safetensors.torch import load_file

weights = load_file("model.safetensors")
head = weights["lm_head.weight"].detach().contiguous()
head.resize_(head.shape[0] + 64, head.shape[1])  # VD101
"""
        ),
        Example(
            code="""
import torch

history = torch.zeros(16)
print(history.numpy().mean())
history.resize_(32)  # VD101
queue = torch.zeros(16).share_memory_()
queue.resize_(32)  # VD101
torch.cat([queue, queue], out=queue)  # VD101
"""
        ),
        Example(
            code="""
import torch.multiprocessing as mp
from safetensors import safe_open

state = {}
with safe_open("model.safetensors", "pt") as file:
    for name in file.keys():
        state[name] = file.get_tensor(name)
state["head"].resize_(60_000, 768)  # VD101


def receive(queue: mp.Queue):
    queue.get().resize_(64, 3, 224, 224)  # VD101
"""
        ),
    ),
    good=(
        Example(
            code="""
import numpy as np
import torch

t = torch.from_numpy(np.zeros(1024, dtype=np.float32))
t.resize_(512)
t = t.clone()
t.resize_(2048)
view = torch.zeros(10)[2:4]
view.resize_(20)
"""
        ),
        Example(
            code="""
import numpy as np
import torch

result = np.empty((4, 4), dtype=np.float32)
torch.mm(torch.rand(4, 4), torch.rand(4, 4), out=torch.from_numpy(result))
"""
        ),
        Example(
            code="""
import torch

scores = torch.zeros(16, device="cuda")
print(scores.cpu().numpy().mean())
scores.resize_(32)
"""
        ),
    ),
    words=("resize_", "resize_as_", "set_", "out"),
    pattern=re.compile(r"[ (,]out=|resize_\(|resize_as_\(|\.set_\("),
    limits="""
    An `out=` tensor is reported only where it is certain to be too small. Tensors made in other files are not judged. A size that is a
    plain number, on a tensor of unknown size, is taken for a larger one. Whether `from_pretrained` left weights in the mapped file depends on
    the dtype of the checkpoint: such weights are a warning.
    """,
)


@RULE.on_call("resize_", "resize_as_")
def check_resize(source: Source, call: ast.Call) -> Iterator[Finding]:
    """``t.resize_(n)``, ``t.untyped_storage().resize_(n)``."""
    target = receiver(call)
    if source.qualname(call.func) in {"torch.Tensor.resize_", "torch.resize_as_"} and call.args:
        target = call.args[0]
        call = ast.copy_location(ast.Call(call.func, call.args[1:], call.keywords), call)
    if target is None:
        return
    of_storage = isinstance(target, ast.Call) and getattr(target.func, "attr", "") in {
        "untyped_storage",
        "storage",
        "_typed_storage",
    }
    yield from _judged(
        source,
        call,
        target,
        lambda storage: _grows(source, call, target, storage, of_storage=of_storage),
        "growing it",
    )


@RULE.on_call("set_")
def check_set(source: Source, call: ast.Call) -> Iterator[Finding]:
    """``t.set_(storage, offset, size)`` with a size known to be larger than the storage."""
    size = argument(call, "size", 2)
    if size is not None and call.args:
        wanted = product(source, dimensions(source, [size]))
        yield from _judged(
            source,
            call,
            call.args[0],
            lambda s: wanted is not None and s.numel is not None and wanted > s.numel,
            "a view larger than it",
        )


@RULE.on_node(ast.keyword)
def check_out(source: Source, node: ast.AST) -> Iterator[Finding]:
    """``out=`` tensors that are certainly too small for the result."""
    call = source.parents[node]
    if not isinstance(node, ast.keyword) or node.arg != "out" or not isinstance(call, ast.Call):
        return
    if not (source.qualname(call.func) or "").startswith("torch."):
        return
    result = result_numel(source, call)
    own = key_of(node.value)
    appended = own is not None and own in _joined(call)
    yield from _judged(
        source,
        call,
        node.value,
        lambda s: appended or (result is not None and s.numel is not None and result > s.numel),
        "the result of out= needs more than it has, so growing it",
    )


def _judged(
    source: Source, call: ast.Call, target: ast.AST, grows: Callable[[Storage], bool], what: str
) -> Iterator[Finding]:
    found = storages(source, target)
    bad = [s for s in found if s.owner in {Owner.FOREIGN, Owner.SHARED} and grows(s)]
    if not bad:
        return
    certain = all(s.certain for s in bad) and not any(s.owner is Owner.TORCH for s in found)
    yield at(call, _message(target, bad[0], what), None if certain else Level.WARNING)


def _message(target: ast.AST, storage: Storage, what: str) -> str:
    name = key_of(target) or "this tensor"
    end = (
        "ends in a segmentation fault"
        if storage.owner is Owner.SHARED
        else 'raises "Trying to resize storage that is not resizable"'
    )
    return f"the storage of {name} {storage.what}; {what} {end}: clone it first, or allocate the larger tensor and copy"


def _grows(
    source: Source, call: ast.Call, target: ast.AST, storage: Storage, *, of_storage: bool
) -> bool:
    """Whether the call asks for more than there is, as far as the file tells; where it does not, it is taken to."""
    if of_storage and storage.owner is Owner.FOREIGN:
        return True  # UntypedStorage.resize_ refuses any size, also a smaller one
    if getattr(call.func, "attr", "") == "resize_as_":
        wanted = numel(source, call.args[0]) if call.args else None
        return wanted is None or storage.numel is None or wanted > storage.numel
    sizes = dimensions(source, list(call.args))
    wanted = product(source, sizes)
    if wanted is not None and (of_storage or storage.numel is None):
        return wanted > 0
    if wanted is not None and storage.numel is not None:
        return wanted > storage.numel
    return not _shrinks(source, sizes, target)


def _shrinks(source: Source, sizes: Sequence[ast.expr], target: ast.AST) -> bool:
    """Whether the new size is the tensor's own size made smaller: ``t.numel() // 2``, ``t.shape[0] - 1``, or that very size."""
    own = key_of(target)
    numbers = [value for size in sizes if (value := number(source, size)) is not None]
    if 0 in numbers:
        return True
    changed = [size for size in sizes if number(source, size) is None and not _own_size(size, own)]
    if not changed:  # a number beside the tensor's own sizes is taken for a larger one
        return len(numbers) < len(sizes) and set(numbers) <= {1}
    return all(_smaller(size, own) for size in changed)


def _smaller(size: ast.expr, own: str | None) -> bool:
    """``t.numel() // 2``, ``t.shape[0] - 1``, ``min(n, t.numel())``."""
    if isinstance(size, ast.Call):
        return last_name(size.func) == "min" and any(_own_size(a, own) for a in size.args)
    return (
        isinstance(size, ast.BinOp)
        and isinstance(size.op, (ast.Sub, ast.FloorDiv))
        and _own_size(size.left, own)
    )


def _own_size(node: ast.AST, own: str | None) -> bool:
    """``t.shape``, ``t.shape[0]``, ``t.size(0)``, ``t.numel()``, ``len(t)``."""
    if isinstance(node, ast.Subscript):
        node = node.value
    if isinstance(node, ast.Call):
        if isinstance(node.func, ast.Name) and node.func.id == "len" and node.args:
            return own is not None and key_of(node.args[0]) == own
        node = node.func
    return (
        isinstance(node, ast.Attribute)
        and node.attr in {"shape", "size", "numel"}
        and own is not None
        and key_of(node.value) == own
    )


def _joined(call: ast.Call) -> set[str | None]:
    """What torch.cat and its like join."""
    if last_name(call.func) not in JOINS or not call.args:
        return set()
    tensors = call.args[0]
    return (
        {key_of(e) for e in tensors.elts}
        if isinstance(tensors, (ast.List, ast.Tuple)) and len(tensors.elts) > 1
        else set()
    )
