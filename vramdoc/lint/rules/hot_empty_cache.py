"""VD401: ``empty_cache`` in a loop over batches, tokens or requests."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator

from vramdoc.lint.finding import Finding, at
from vramdoc.lint.gradients import is_forward
from vramdoc.lint.rule import Example, Rule
from vramdoc.lint.source import COMPREHENSIONS, DEFINITIONS, LOOPS, Source, last_name
from vramdoc.lint.violation import Level

RULE = Rule(
    id="VD401",
    name="empty-cache-in-hot-loop",
    title="empty_cache in a hot loop",
    level=Level.WARNING,
    why="""
    `empty_cache` gives wholly free segments back to the driver; the next step asks for them again. Each round is a device synchronisation
    and a row of cudaMalloc calls, and the peak of live tensors stays where it was (pytorch#31353). The allocator flushes its cache by itself
    before it reports that memory is out.
    """,
    instead="Call it once, after a phase has ended and its tensors are deleted, when another process or library needs the memory.",
    bad=(
        Example(
            code="""
import torch


def run(net, loader, opt):
    for x, y in loader:
        loss = net(x.cuda(), y.cuda())
        loss.backward()
        opt.step()
        torch.cuda.empty_cache()  # VD401
"""
        ),
        Example(
            code="""
from torch.cuda import empty_cache


def step(net, batch):
    out = net(batch)
    empty_cache()  # VD401
    return out


def evaluate(net, loader):
    return [step(net, batch) for batch in loader]
"""
        ),
    ),
    good=(
        Example(
            code="""
import torch


def train(net, loader, opt, epochs):
    for epoch in range(epochs):
        for x, y in loader:
            net(x, y).backward()
            opt.step()
        torch.cuda.empty_cache()
"""
        ),
        Example(
            code="""
import torch


def run(net, batches):
    for n, batch in enumerate(batches):
        try:
            net(batch)
        except torch.cuda.OutOfMemoryError:
            torch.cuda.empty_cache()
        if n % 500 == 0:
            torch.cuda.empty_cache()
"""
        ),
    ),
    words=("empty_cache",),
    limits="Loops over epochs, models, configurations or layers count as phases, and so does a call that runs only now and then.",
)
_PHASE = re.compile(
    r"epoch|model|fold|trial|config|experiment|stage|phase|seed|checkpoint|ckpt|layer|block|module|name|param|size|setting|method|variant|candidate|rank|device|attempt|retry|run$|runs$|bench",
    re.IGNORECASE,
)
_HOT = re.compile(
    r"loader|batch|dataset|data|sample|prompt|request|token|step|frame|image|text|quer|chunk|iter|example|sentence|document|question|audio|video|queue|message|input|item|dl$|ds$",
    re.IGNORECASE,
)
_STEP_METHODS = re.compile(
    r"^(training_step|validation_step|test_step|predict_step|on_train_batch_(start|end)|on_batch_end|on_step_end|on_validation_batch_end|forward|collate_fn|prediction_step)$"
)
_WORK = frozenset(
    {
        "backward",
        "step",
        "generate",
        "zero_grad",
        "forward",
        "training_step",
        "manual_backward",
        "decode",
        "encode",
        "predict",
    }
)


@RULE.on_call("empty_cache")
def check(source: Source, call: ast.Call) -> Iterator[Finding]:
    """Calls that run with every turn of a hot loop, directly or in a function that such a loop calls."""
    name = source.qualname(call.func) or ""
    if not name.startswith("torch.") and "torch" not in name:
        return
    reason = _hot(source, call, depth=2)
    if reason:
        yield at(
            call,
            f"empty_cache {reason}: memory is given back only to be asked for again, at the price of a synchronisation; the peak stays",
        )


def _hot(source: Source, node: ast.AST, depth: int) -> str:
    """Why ``node`` runs over and over; empty where it does not."""
    if _now_and_then(source, node):
        return ""
    loop = next(source.loops(node), None)
    if loop is not None:
        return (
            f"runs with every turn of the loop in line {loop.lineno}"
            if _is_hot(source, loop)
            else ""
        )
    function = source.function(node)
    if not isinstance(function, DEFINITIONS):
        return _in_hot_comprehension(source, node)
    if _STEP_METHODS.match(function.name):
        return f"runs with every call of {function.name}"
    if depth > 0:
        for site in source.flow.call_sites(function):
            reason = _in_hot_comprehension(source, site) or _hot(source, site, depth - 1)
            if reason:
                return reason
    return ""


def _in_hot_comprehension(source: Source, node: ast.AST) -> str:
    for up in source.ancestors(node):
        if isinstance(up, ast.expr) and any(map(_says_hot, _gone_through(up))):
            return f"runs with every element of line {up.lineno}"
        if isinstance(up, ast.stmt):
            return ""
    return ""


def _gone_through(node: ast.expr) -> list[ast.expr]:
    """What a comprehension goes through, or ``map(lambda batch: step(batch), loader)``."""
    if isinstance(node, COMPREHENSIONS):
        return [node.generators[0].iter]
    maps = isinstance(node, ast.Call) and last_name(node.func) in {"map", "imap", "starmap"}
    return node.args[1:] if isinstance(node, ast.Call) and maps else []


def _now_and_then(source: Source, node: ast.AST) -> bool:
    """In a handler, or under a condition within the loop: not with every turn."""
    loop = next(source.loops(node), None)
    for up in source.ancestors(node):
        if up is loop or isinstance(up, DEFINITIONS):
            break
        if isinstance(up, ast.ExceptHandler):
            return True
        if isinstance(up, ast.If) and not _asks_for_cuda(up.test):
            return True
    return loop is not None and _after_failure(source, node, loop)


def _after_failure(source: Source, node: ast.AST, loop: ast.For | ast.AsyncFor | ast.While) -> bool:
    """Behind a ``try`` that leaves the turn when it succeeds: what follows runs after a failure only."""
    return any(
        isinstance(statement, ast.Try)
        and isinstance(statement.body[-1], (ast.Return, ast.Break, ast.Continue))
        and source.position[statement] < source.position[node]
        and not source.within(node, statement)
        for statement in loop.body
    )


def _asks_for_cuda(test: ast.AST) -> bool:
    """``if torch.cuda.is_available():`` is no condition of the turn; ``if torch.cuda.memory_reserved() > limit:`` is."""
    if any(isinstance(n, (ast.Lt, ast.LtE, ast.Gt, ast.GtE)) for n in ast.walk(test)):
        return False
    names = {n.attr for n in ast.walk(test) if isinstance(n, ast.Attribute)} | {
        n.id for n in ast.walk(test) if isinstance(n, ast.Name)
    }
    return bool(names & {"is_available", "cuda", "use_cuda", "is_cuda", "has_cuda", "device"})


def _is_hot(source: Source, loop: ast.For | ast.AsyncFor | ast.While) -> bool:
    own = list(_own_nodes(loop))
    if any(
        isinstance(n, ast.Call)
        and last_name(n.func) in {"from_pretrained", "load_state_dict", "load_model", "load"}
        for n in own
    ):
        return False
    if isinstance(loop, ast.While):
        return _works(source, own)
    target = " ".join(n.id for n in ast.walk(loop.target) if isinstance(n, ast.Name))
    if _says_hot(loop.iter) and not (_PHASE.search(target) and not _HOT.search(target)):
        return True
    if _PHASE.search(target) or _PHASE.search(_words(loop.iter)):
        return False
    return _works(source, own)


def _works(source: Source, own: list[ast.AST]) -> bool:
    """Whether a turn does a step's work itself, rather than running a phase with a loop of its own."""
    if any(isinstance(n, LOOPS) for n in own):
        return False
    return any(
        isinstance(n, ast.Call) and (last_name(n.func) in _WORK or is_forward(source, n))
        for n in own
    )


def _own_nodes(loop: ast.AST) -> Iterator[ast.AST]:
    """Nodes of the body, functions defined there left out."""
    for child in ast.iter_child_nodes(loop):
        if not isinstance(child, (*DEFINITIONS, ast.Lambda, ast.ClassDef)):
            yield child
            yield from _own_nodes(child)


def _says_hot(iterable: ast.AST) -> bool:
    words = _words(iterable)
    return _HOT.search(words) is not None and _PHASE.search(words) is None


def _words(node: ast.AST) -> str:
    return " ".join(
        n.id if isinstance(n, ast.Name) else n.attr
        for n in ast.walk(node)
        if isinstance(n, (ast.Name, ast.Attribute))
    )
