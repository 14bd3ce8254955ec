"""VD503: worker processes that open a CUDA context each."""

from __future__ import annotations

import ast
from collections.abc import Iterator

from vramdoc.lint.bindings import Role, key_of
from vramdoc.lint.devices import ENGINES, cuda, names_current_device, starts_cuda
from vramdoc.lint.finding import Finding, at
from vramdoc.lint.literals import number
from vramdoc.lint.rule import Example, Rule
from vramdoc.lint.source import COMPREHENSIONS, DEFINITIONS, Source, argument, last_name
from vramdoc.lint.violation import Level

RULE = Rule(
    id="VD503",
    name="cuda-context-in-workers",
    title="CUDA used in data-loading or pool workers",
    level=Level.WARNING,
    why="""
    Each process that touches CUDA opens a context of its own: 0.3 to 0.5 GiB that PyTorch does not count, times the workers
    (ai2cm/ace PR #1396: 24 contexts, 12.2 GiB). With the fork start method it fails instead: "Cannot re-initialize CUDA in forked subprocess".
    """,
    instead="Keep workers on the CPU and move the batch in the main process (`pin_memory=True`, `non_blocking=True`).",
    bad=(
        Example(
            code="""
import torch
from torch.utils.data import DataLoader


def init(_):
    torch.cuda.set_device(0)  # VD503


def loader(ds):
    return DataLoader(ds, num_workers=8, worker_init_fn=init)
"""
        ),
        Example(
            code="""
import torch
from torch.utils import data


class Images(data.Dataset):
    def __getitem__(self, index):
        return torch.load(self.paths[index]).to("cuda")  # VD503


loader = data.DataLoader(Images(), num_workers=4)
"""
        ),
    ),
    good=(
        Example(
            code="""
import torch
from torch.utils.data import DataLoader, Dataset


class Images(Dataset):
    def __getitem__(self, index):
        return torch.load(self.paths[index], map_location="cpu")


class OnDevice(Dataset):
    def __getitem__(self, index):
        return torch.zeros(8, device="cuda")


loader = DataLoader(Images(), num_workers=4, pin_memory=True)
single = DataLoader(OnDevice(), num_workers=0)
for batch in loader:
    batch.cuda(non_blocking=True)
"""
        ),
    ),
    words=("DataLoader", "Pool", "ProcessPoolExecutor", "Process", "delayed"),
    limits="Functions and datasets defined in the same file.",
)
_DATASET_METHODS = frozenset({"__getitem__", "__iter__", "__getitems__"})
_POOL_METHODS = frozenset(
    {"map", "imap", "imap_unordered", "starmap", "apply", "apply_async", "map_async", "submit"}
)


@RULE.on_call("DataLoader")
def check_loader(source: Source, call: ast.Call) -> Iterator[Finding]:
    """The functions and the dataset that a loader with workers runs in them."""
    workers = _given(source, call, "num_workers", 5)
    if workers is None or number(source, workers) == 0:
        return
    functions = [
        f
        for name in ("worker_init_fn", "collate_fn")
        for f in _functions(source, _given(source, call, name))
    ]
    methods = _dataset_methods(source, _given(source, call, "dataset", 0))
    yield from _reported(source, [*functions, *methods], "each DataLoader worker")


def _given(source: Source, call: ast.Call, name: str, index: int | None = None) -> ast.expr | None:
    """An argument, also one that comes in a ``**`` dictionary written in the file."""
    found = argument(call, name, index)
    if found is not None:
        return found
    for keyword in call.keywords:
        for origin in source.flow.origins(keyword.value) if keyword.arg is None else ():
            if isinstance(origin.node, ast.Dict):
                for key, value in zip(origin.node.keys, origin.node.values, strict=True):
                    if isinstance(key, ast.Constant) and key.value == name:
                        return value
    return None


@RULE.on_call("Pool", "ProcessPoolExecutor")
def check_pool(source: Source, call: ast.Call) -> Iterator[Finding]:
    """What a pool runs at the start of each process, and what is mapped over it."""
    module = (source.qualname(call.func) or "").partition(".")[0]
    if module not in {"multiprocessing", "torch", "concurrent"}:
        return
    functions = _functions(source, argument(call, "initializer"))
    for other in source.calls_named(*_POOL_METHODS):
        target = other.func.value if isinstance(other.func, ast.Attribute) else None
        pool = target is not None and any(o.node is call for o in source.flow.origins(target))
        if pool and other.args:
            functions.extend(_functions(source, other.args[0]))
    yield from _reported(source, functions, "each process of the pool")


@RULE.on_call("Process")
def check_process(source: Source, call: ast.Call) -> Iterator[Finding]:
    """Processes started in a loop that all use the current device; one a GPU, chosen by rank, is how it should be."""
    module = (source.qualname(call.func) or "").partition(".")[0]
    in_turn = any(isinstance(up, COMPREHENSIONS) for up in source.ancestors(call))
    if module not in {"multiprocessing", "torch"} or not (
        in_turn or next(source.loops(call), None)
    ):
        return
    for function in _functions(source, argument(call, "target", 1)):
        chooses = any(
            isinstance(n, ast.Attribute) and n.attr in {"set_device", "init_process_group"}
            for n in ast.walk(function)
        )
        use = None if chooses else _first_use(source, function, set())
        engine = use is not None and source.qualname(use.func) in ENGINES  # VD505 tells about those
        if use is not None and not engine and not _by_rank(source, use):
            yield at(
                use,
                "each process opens a CUDA context on the same GPU here, 0.3 to 0.5 GiB of device memory each",
            )


def _by_rank(source: Source, call: ast.Call) -> bool:
    """Whether the device of a call is computed: ``f"cuda:{rank}"``, ``.cuda(rank)``."""
    given = [
        *call.args,
        *(keyword.value for keyword in call.keywords if keyword.arg in {"device", "device_map"}),
    ]
    return any(
        not isinstance(origin.node, ast.Constant) and not names_current_device(source, value)
        for value in given
        if cuda(source, value) is not False
        for origin in source.flow.origins(value)
    )


@RULE.on_call("delayed")
def check_joblib(source: Source, call: ast.Call) -> Iterator[Finding]:
    """``Parallel(n_jobs=8)(delayed(work)(x) for x in items)``."""
    if source.qualname(call.func) == "joblib.delayed" and call.args:
        yield from _reported(source, _functions(source, call.args[0]), "each joblib worker")


def _functions(source: Source, node: ast.AST | None) -> list[ast.AST]:
    """Functions of this file that an expression names, through ``partial``."""
    if node is None:
        return []
    if isinstance(node, ast.Call) and last_name(node.func) == "partial" and node.args:
        return _functions(source, node.args[0])
    if isinstance(node, ast.Lambda):
        return [node]
    if isinstance(node, (ast.Name, ast.Attribute)):
        named = source.definitions.get(last_name(node), ())
        if named:
            return list(named)
        return [o.node for o in source.flow.origins(node) if isinstance(o.node, ast.Lambda)]
    return [f for owner in _classes(source, node) for f in _methods(owner, {"__call__"})]


def _dataset_methods(source: Source, dataset: ast.AST | None) -> list[ast.AST]:
    owners = _classes(source, dataset) if dataset is not None else []
    if not owners:
        # The loader may be given any dataset of the file when it is a parameter.
        origins = source.flow.origins(dataset) if dataset is not None else []
        if any(o.role in {Role.PARAMETER, Role.UNKNOWN} for o in origins):
            owners = [
                c
                for c in source.nodes.get(ast.ClassDef, ())
                if isinstance(c, ast.ClassDef) and _is_dataset(source, c)
            ]
    return [method for owner in owners for method in _methods(owner, _DATASET_METHODS)]


def _is_dataset(source: Source, owner: ast.ClassDef) -> bool:
    return any((source.qualname(base) or "").endswith("Dataset") for base in owner.bases)


def _classes(source: Source, node: ast.AST) -> list[ast.ClassDef]:
    names = {
        last_name(o.node.func) for o in source.flow.origins(node) if isinstance(o.node, ast.Call)
    }
    return [
        c
        for c in source.nodes.get(ast.ClassDef, ())
        if isinstance(c, ast.ClassDef) and c.name in names
    ]


def _methods(owner: ast.ClassDef, names: frozenset[str] | set[str]) -> list[ast.AST]:
    return [item for item in owner.body if isinstance(item, DEFINITIONS) and item.name in names]


def _reported(source: Source, functions: list[ast.AST], who: str) -> Iterator[Finding]:
    for function in dict.fromkeys(functions):
        use = _first_use(source, function, set())
        if use is not None:
            yield at(
                use,
                f"{who} opens a CUDA context here, 0.3 to 0.5 GiB of device memory each; move tensors to the GPU in the main process",
            )


def _first_use(source: Source, function: ast.AST, seen: set[ast.AST]) -> ast.Call | None:
    """The first call in ``function``, or in what it calls, that uses CUDA."""
    if function in seen:
        return None
    seen.add(function)
    for node in ast.walk(function):
        if isinstance(node, ast.Call):
            if starts_cuda(source, node):
                return node
            for inner in source.flow.called(node):
                found = _first_use(source, inner, seen)
                if found is not None:
                    return found
    # Or a tensor or module that __init__ put on the GPU: named where that is done.
    return next(
        (
            origin.node
            for node in ast.walk(function)
            if isinstance(node, ast.Attribute) and (key_of(node) or "").startswith("self.")
            for origin in source.flow.origins(node)
            if isinstance(origin.node, ast.Call) and starts_cuda(source, origin.node)
        ),
        None,
    )
