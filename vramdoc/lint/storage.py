"""Whose memory is behind a tensor: torch's own, or a file's, NumPy's, another process's, which torch cannot grow.

The table was measured on torch 2.13 and 2.14 (c10::StorageImpl::resizable): being a view freezes nothing; a storage without an
allocator is frozen, and so is one that was exported to NumPy once. Aliases (``detach``, ``view``, slices) are followed to where
the storage was made; copies (``clone``, arithmetic, ``.cuda()``) end the search at themselves.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator
from dataclasses import dataclass
from enum import Enum
from typing import TYPE_CHECKING

from vramdoc.lint.arrays import from_numpy
from vramdoc.lint.bindings import Origin, Role, key_of
from vramdoc.lint.containers import put_into
from vramdoc.lint.devices import cuda, starts_cuda
from vramdoc.lint.exports import freezes, order
from vramdoc.lint.literals import flag, number
from vramdoc.lint.shapes import numel
from vramdoc.lint.source import argument, last_name, receiver
from vramdoc.lint.weights import left_as_in_file, loaded_module, moved

if TYPE_CHECKING:
    from vramdoc.lint.source import Source


class Owner(Enum):
    """Who owns the bytes."""

    TORCH = "torch"
    FOREIGN = "someone else: torch refuses to grow it"
    SHARED = "shared memory made here: growing it crashes"
    UNKNOWN = "unknown"


@dataclass(frozen=True, slots=True)
class Storage:
    """Where a storage comes from. ``what`` completes "its storage ..."."""

    owner: Owner
    what: str
    root: ast.AST
    numel: int | None = None
    certain: bool = True
    """False where the order of calls decides: one method exports, another grows."""


_FROZEN_CALLS = {
    "torch.from_numpy": "belongs to a NumPy array",
    "torch.frombuffer": "belongs to a buffer object",
    "torch.from_file": "is a mapped file",
    "torch.UntypedStorage.from_file": "is a mapped file",
    "torch.from_dlpack": "was imported through DLPack",
    "torch.utils.dlpack.from_dlpack": "was imported through DLPack",
    "safetensors.torch.load_file": "is mapped from a safetensors file",
    "safetensors.torch.load": "belongs to the bytes it was read from",
    "torch.jit.load": "belongs to the archive it was read from",
    "torch.export.load": "belongs to the archive it was read from",
    "torch.multiprocessing.Queue": "is shared memory of the process that sent it",
    "torch.multiprocessing.SimpleQueue": "is shared memory of the process that sent it",
    "torch.multiprocessing.JoinableQueue": "is shared memory of the process that sent it",
}
_FROZEN_METHODS = {
    "pin_memory": "is pinned host memory, allocated once",
    "get_tensor": "is mapped from a safetensors file",
    "get_slice": "is mapped from a safetensors file",
}
_ALIASES = frozenset({
    "detach", "detach_", "view", "view_as", "reshape", "contiguous", "t", "transpose", "permute", "squeeze", "unsqueeze", "narrow", "select",
    "expand", "expand_as", "as_strided", "flatten", "unflatten", "movedim", "swapaxes", "requires_grad_", "diagonal", "unbind",
    "chunk", "split", "untyped_storage", "storage", "_typed_storage", "items", "values", "keys", "get", "pop", "popitem", "setdefault",
    "numpy_", "resize_", "resize_as_", "set_", "share_memory_", "__getitem__", "as_subclass", "T", "squeeze_", "unsqueeze_", "t_",
})  # fmt: skip
"""Methods whose result has the storage of what they are called on (or, of a dictionary, holds its tensors)."""
_MEMBERS = frozenset({"parameters", "named_parameters", "buffers", "named_buffers", "state_dict"})
"""Methods of a module whose result holds its tensors."""
_ALIAS_ATTRIBUTES = frozenset({"data", "T", "mT", "H", "real", "imag"})
_WRAPPERS = frozenset({
    "torch.nn.Parameter", "torch.nn.parameter.Parameter", "torch.nn.Buffer", "enumerate", "zip", "list", "tuple", "sorted", "reversed",
    "iter", "next", "dict", "torch.detach", "torch.reshape", "torch.squeeze", "torch.unsqueeze", "torch.transpose", "typing.cast",
    "collections.OrderedDict",
})  # fmt: skip
"""Calls whose result is, or holds, their arguments."""


def storages(source: Source, node: ast.AST) -> list[Storage]:
    """The storages that a tensor (or a container of tensors) may have, one for each place it may come from."""
    roots = list(dict.fromkeys(_roots(source, node, 0)))
    frozen = _frozen_here(source, node, roots)
    return [frozen.get(root) or _made(source, root) for root in roots]


_DEEPEST = 16


def _roots(source: Source, node: ast.AST, depth: int) -> Iterator[ast.AST]:
    """The expressions (or parameters) that made the storage."""
    if depth > _DEEPEST:
        yield node
        return
    for origin in source.flow.origins(node):
        if origin.role is Role.ADDED:
            continue
        if origin.role in {Role.PARAMETER, Role.UNKNOWN}:
            yield origin.node
            continue
        yield from _through(source, origin, depth + 1)
    for container in _containers(source, node):
        for value in put_into(source, container):
            yield from _roots(source, value, depth + _DEEPEST // 2)


def _containers(source: Source, node: ast.AST) -> Iterator[ast.AST]:
    """What ``node`` is an element of, where that was filled after it was made: ``rows`` for ``row`` in ``for row in rows``."""
    if isinstance(node, ast.Subscript) and not source.flow.reaching(node):
        yield node.value
    elif isinstance(node, (ast.Name, ast.Attribute)):
        for binding in source.flow.reaching(node):
            if binding.role in {Role.ITEM, Role.PART} and binding.value is not None:
                yield binding.value


def _through(source: Source, origin: Origin, depth: int) -> Iterator[ast.AST]:
    node = origin.node
    if isinstance(node, ast.Attribute) and node.attr in _ALIAS_ATTRIBUTES:
        yield from _roots(source, node.value, depth)
    elif isinstance(node, ast.Subscript):
        yield from _indexed(source, node, depth)
    elif isinstance(node, (ast.Tuple, ast.List, ast.Set)):
        for element in node.elts:
            yield from _roots(source, element, depth)
    elif isinstance(node, ast.Dict):
        for value in node.values:
            yield from _roots(source, value, depth)
    elif isinstance(node, (ast.ListComp, ast.SetComp, ast.GeneratorExp)):
        yield from _roots(source, node.elt, depth)
    elif isinstance(node, ast.DictComp):
        yield from _roots(source, node.value, depth)
    elif isinstance(node, ast.Call):
        yield from _call(source, node, depth)
    else:
        yield node


def _indexed(source: Source, node: ast.Subscript, depth: int) -> Iterator[ast.AST]:
    index = node.slice
    if isinstance(index, ast.Slice) and _is_storage(source, node.value):
        yield node
        return
    # x[mask] and x[[0, 2]] gather into new memory; everything else is a view (or an entry of a dictionary or list).
    if any(_gathers(source, origin.node) for origin in source.flow.origins(index)):
        yield node
        return
    yield from _roots(source, node.value, depth)


def _gathers(source: Source, index: ast.AST) -> bool:
    """Whether an index is a mask, or a list or tensor of places."""
    if isinstance(index, ast.Call):
        return (source.qualname(index.func) or "").startswith(("torch.", "numpy."))
    return isinstance(index, (ast.List, ast.Compare))


def _is_storage(source: Source, node: ast.AST) -> bool:
    """Whether ``node`` is an UntypedStorage: a slice of one has no allocator."""
    made = [origin.node for origin in source.flow.origins(node)]
    return bool(made) and all(
        isinstance(m, ast.Call)
        and getattr(m.func, "attr", "") in {"untyped_storage", "UntypedStorage"}
        for m in made
    )


def _call(source: Source, call: ast.Call, depth: int) -> Iterator[ast.AST]:
    name = source.qualname(call.func) or ""
    if name in _WRAPPERS:
        for value in call.args:
            yield from _roots(source, value, depth)
        return
    target = receiver(call)
    method = call.func.attr if isinstance(call.func, ast.Attribute) else ""
    converts = name in {"torch.as_tensor", "torch.asarray"} and call.args and not call.keywords
    if converts and not from_numpy(source, call.args[0]):
        yield from _roots(source, call.args[0], depth)
    elif name.startswith(("torch.", "numpy.", "safetensors.")):
        yield call
    elif target is not None and method in _MEMBERS:
        yield from [call] if moved(source, target) else _roots(source, target, depth)
    elif target is not None and (method in _ALIASES or _in_place(method)):
        yield from _roots(source, target, depth)
    elif method == "new" and len(call.args) == 1:
        yield from _roots(source, call.args[0], depth)
    elif target is not None and method == "to" and _stays(source, call):
        yield from _roots(source, target, depth)
    elif target is not None and method == "cpu":
        # An alias of what is on the host; of a tensor on a GPU, or of one that came from elsewhere, it may be a copy.
        for root in _roots(source, target, depth):
            yield root if _on_host(source, root) else call
    else:
        yield call


def _on_host(source: Source, root: ast.AST) -> bool:
    """Whether what the expression makes is certainly on the host."""
    return (
        isinstance(root, ast.Call)
        and _made(source, root).owner is not Owner.UNKNOWN
        and not starts_cuda(source, root)
    )


def _in_place(method: str) -> bool:
    return method.endswith("_") and not method.endswith("__") and not method.startswith("_")


def _stays(source: Source, call: ast.Call) -> bool:
    """Whether ``.to(...)`` names the host and nothing else: no copy of a tensor that is there already."""
    return len(call.args) == 1 and not call.keywords and _is_host(source, call.args[0])


def _is_host(source: Source, node: ast.AST) -> bool:
    return cuda(source, node) is False and all(
        isinstance(o.node, (ast.Constant, ast.Call)) for o in source.flow.origins(node)
    )


def _made(source: Source, root: ast.AST) -> Storage:
    """What the expression at the root says about the storage it makes."""
    if isinstance(root, ast.Attribute):
        return _member(source, root)
    if isinstance(root, ast.Subscript) and _is_storage(source, root.value):
        return Storage(Owner.FOREIGN, "is a slice of another storage", root)
    if isinstance(root, ast.arg) and root.annotation is not None:
        return _annotated(source, root, root.annotation)
    if not isinstance(root, ast.Call):
        computed = isinstance(root, (ast.BinOp, ast.UnaryOp, ast.Compare, ast.Subscript))
        return Storage(Owner.TORCH if computed else Owner.UNKNOWN, "", root)
    root = source.flow.applied(root)
    name = _maker(source, root)
    method = root.func.attr if isinstance(root.func, ast.Attribute) else ""
    size = numel(source, root)
    if name in _LOADERS:
        return _loaded(source, root, name)
    if name.endswith("DataLoader"):
        return _batch(source, root)
    frozen = _FROZEN_CALLS.get(name)
    if (
        name in {"torch.as_tensor", "torch.asarray"}
        and root.args
        and from_numpy(source, root.args[0])
    ):
        if root.keywords:  # another dtype or device, or copy=True: a copy, or not
            return Storage(Owner.UNKNOWN, "", root, size)
        frozen = _FROZEN_CALLS["torch.from_numpy"]
    if frozen is None and not name.startswith("torch."):
        frozen = _FROZEN_METHODS.get(method)
    if frozen is not None:
        # Pinned storage was read to be frozen in every source version and could not be tried.
        return Storage(Owner.FOREIGN, frozen, root, size, certain=method != "pin_memory")
    if name.startswith("torch.") or _copies(source, root, method):
        return Storage(Owner.TORCH, "", root, size)
    return Storage(Owner.UNKNOWN, "", root)


def _maker(source: Source, call: ast.Call) -> str:
    """The function that makes the tensors: of ``map(torch.from_numpy, arrays)`` torch.from_numpy."""
    name = source.qualname(call.func) or ""
    if name == "map" and call.args:
        return source.qualname(call.args[0]) or ""
    owner = receiver(call)
    if not name and isinstance(owner, ast.Call) and last_name(call.func).endswith("Queue"):
        # multiprocessing.get_context("spawn").Queue(), of torch.multiprocessing
        context = source.qualname(owner.func) or ""
        return f"{context.removesuffix('.get_context')}.{last_name(call.func)}"
    return name


def _annotated(source: Source, parameter: ast.arg, annotation: ast.expr) -> Storage:
    """A parameter whose annotation says what it is: ``queue: torch.multiprocessing.Queue``."""
    what = _FROZEN_CALLS.get(source.qualname(annotation) or "")
    return Storage(Owner.FOREIGN if what else Owner.UNKNOWN, what or "", parameter)


def _member(source: Source, node: ast.Attribute) -> Storage:
    """A parameter or buffer of a module: whose it is depends on how the module was loaded."""
    if moved(source, node.value):
        return Storage(Owner.UNKNOWN, "", node)
    loaded = loaded_module(source, node.value)
    name = (source.qualname(loaded.func) or "") if loaded is not None else ""
    if name in {"torch.jit.load", "torch.export.load"}:
        return Storage(Owner.FOREIGN, _FROZEN_CALLS[name], node)
    if loaded is not None and name.startswith("transformers.") and left_as_in_file(source, loaded):
        return Storage(Owner.FOREIGN, "is mapped from the checkpoint", node, certain=False)
    key = key_of(node) or ""
    for call in source.calls_named("load_state_dict"):
        module = key_of(receiver(call) or call)
        if (
            flag(call, "assign")
            and module
            and key.startswith(f"{module}.")
            and call.args
            and order(source, call, node, set())
        ):
            given = storages(source, call.args[0])
            if given and all(storage.owner is Owner.FOREIGN for storage in given):
                return Storage(
                    Owner.FOREIGN,
                    f"{given[0].what} (load_state_dict(assign=True), line {call.lineno})",
                    node,
                )
    return Storage(Owner.UNKNOWN, "", node)


_COPIES = frozenset({
    "clone", "cuda", "repeat", "new_empty", "new_zeros", "new_ones", "new_full", "new_tensor", "empty_like", "zeros_like",
})  # fmt: skip


def _copies(source: Source, call: ast.Call, method: str) -> bool:
    """Whether a method's result is certainly new memory: ``.to`` only where the device is certainly another."""
    return method in _COPIES or (method == "to" and any(cuda(source, a) for a in call.args))


_LOADERS = {
    "torch.load": ("map_location", 1),
    "torch.hub.load_state_dict_from_url": ("map_location", 2),
    "torch.utils.model_zoo.load_url": ("map_location", 2),
    "safetensors.torch.load_file": ("device", 1),
}
"""Functions that read tensors from a file, with the argument that says where to."""


def _loaded(source: Source, call: ast.Call, name: str) -> Storage:
    where = argument(call, *_LOADERS[name])
    what = _FROZEN_CALLS.get(name, "belongs to the checkpoint it was read from")
    if flag(call, "mmap"):
        what = "is mapped from the checkpoint file"
    if where is None or _is_host(source, where) or isinstance(where, ast.Lambda):
        return Storage(Owner.FOREIGN, what, call)
    return Storage(Owner.TORCH if cuda(source, where) else Owner.UNKNOWN, "", call)


def _batch(source: Source, call: ast.Call) -> Storage:
    """What iterating a DataLoader yields: shared memory of a worker, if there are workers."""
    workers = number(source, argument(call, "num_workers", 5))
    if argument(call, "num_workers", 5) is not None and workers != 0:
        owner = Owner.FOREIGN if workers else Owner.UNKNOWN
        return Storage(owner, "is shared memory of a DataLoader worker", call)
    return Storage(Owner.UNKNOWN, "", call)


# What happens to a storage after it was made


def _frozen_here(source: Source, use: ast.AST, roots: list[ast.AST]) -> dict[ast.AST, Storage]:
    """Roots that were exported or shared before ``use``, or may have been by another method."""
    found: dict[ast.AST, Storage] = {}
    for freeze in freezes(source):
        if source.within(use, freeze.call):
            continue
        touched = set(_roots(source, freeze.target, 0)) & set(roots)
        before = order(source, freeze.call, use, touched) if touched else None
        owner, what = _EXPORTED[freeze.shared]
        for root in touched if before is not None else ():
            made = _made(source, root)
            if made.owner is not Owner.FOREIGN:
                line = f"{what} (line {freeze.call.lineno})"
                found[root] = Storage(owner, line, root, made.numel, certain=bool(before))
    return found


_EXPORTED = {
    False: (Owner.FOREIGN, "was handed to NumPy"),
    True: (Owner.SHARED, "was moved to shared memory"),
}
