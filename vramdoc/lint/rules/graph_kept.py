"""VD301: a loss or prediction kept from step to step with its autograd graph."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator

from vramdoc.lint.arrays import from_numpy
from vramdoc.lint.bindings import Binding, Role, key_of
from vramdoc.lint.containers import ADDERS
from vramdoc.lint.finding import Finding, at
from vramdoc.lint.gradients import Graph, enclosing, gradients_off, graph_of, is_forward
from vramdoc.lint.growth import is_join
from vramdoc.lint.literals import flag
from vramdoc.lint.rule import Example, Rule
from vramdoc.lint.source import DEFINITIONS, LOOPS, Source, last_name, receiver
from vramdoc.lint.violation import Level

RULE = Rule(
    id="VD301",
    name="graph-kept",
    title="loss or predictions kept with their autograd graph",
    level=Level.ERROR,
    why="""
    A tensor computed from parameters refers to its graph, and the graph to activations and inputs. Adding the loss to a running total, or
    appending it (or the outputs) to a list, keeps the graph of every step alive: memory grows with each iteration until it runs out
    (google/brax PR #152 and many others; PyTorch FAQ, "My model reports cuda runtime error(2)"). `.cpu()` does not help, the graph comes along.
    """,
    instead="Keep `loss.item()` or `loss.detach()`, and `outputs.detach().cpu()`.",
    bad=(
        Example(
            code="""
def train(net, loader, opt, crit):
    total, history, outputs = 0, [], []
    for x, y in loader:
        out = net(x)
        loss = crit(out, y)
        loss.backward()
        opt.step()
        total += loss  # VD301
        history.append(loss)  # VD301
        outputs.append(out.cpu())  # VD301
"""
        ),
        Example(
            code="""
class Trainer:
    def step(self, x, y):
        loss = self.crit(self.model(x), y)
        self.scaler.scale(loss).backward()
        self.running = 0.9 * self.running + 0.1 * loss  # VD301
"""
        ),
        Example(
            code="""
class Meter:
    def __init__(self):
        self.sum = 0

    def update(self, value, count=1):
        self.sum += value * count


def train(net, loader, opt, crit):
    meter, average = Meter(), None
    for step, (x, y) in enumerate(loader):
        loss = crit(net(x), y)
        loss.backward()
        opt.step()
        meter.update(loss, len(x))  # VD301
        average = loss if average is None else 0.9 * average + 0.1 * loss  # VD301
"""
        ),
    ),
    good=(
        Example(
            code="""
def train(net, loader, opt, crit):
    total, history, outputs = 0, [], []
    for x, y in loader:
        out = net(x)
        loss = crit(out, y)
        loss.backward()
        opt.step()
        total += loss.item()
        history.append(loss.detach())
        outputs.append(out.argmax(1))
"""
        ),
        Example(
            code="""
def train(net, batches, opt, crit):
    for group in batches:
        total = 0
        for x, y in group:
            total = total + crit(net(x), y)
        total.backward()
        opt.step()
"""
        ),
    ),
    words=("backward", "manual_backward", "scale_loss", "training_step", "compute_loss"),
    pattern=re.compile(
        r"\.backward\(|manual_backward\(|scale_loss\(|def (?:training_step|compute_loss)"
    ),
    limits="What the loop resets now and then is a warning. Only where `backward` is called on it in the same function (or it is what `training_step` returns): elsewhere the graph may be needed.",
)


@RULE.on_node(ast.AugAssign)
def check_added(source: Source, node: ast.AST) -> Iterator[Finding]:
    """``total += loss``."""
    assert isinstance(node, ast.AugAssign)
    if isinstance(node.op, ast.Add):
        yield from _judged(source, node, node.target, node.value)


@RULE.on_node(ast.Assign)
def check_assigned(source: Source, node: ast.AST) -> Iterator[Finding]:
    """``total = total + loss``, ``losses[i] = loss``."""
    assert isinstance(node, ast.Assign)
    for target in node.targets:
        key = key_of(target)
        if key is not None and _adds_to(source, node.value, key):
            yield from _judged(source, node, target, node.value)
        elif (
            isinstance(target, ast.Subscript)
            and _moves(source, target)
            and not from_numpy(source, target.value)  # takes the number alone
        ):
            yield from _judged(source, node, target.value, node.value)


def _adds_to(source: Source, value: ast.expr, key: str) -> bool:
    """``total + loss``, ``loss if total is None else 0.9 * total + 0.1 * loss``, ``torch.cat([total, loss])``."""
    if isinstance(value, ast.IfExp):
        return _adds_to(source, value.body, key) or _adds_to(source, value.orelse, key)
    joins = isinstance(value, ast.Call) and is_join(source, value)
    return (joins or isinstance(value, ast.BinOp)) and _accumulates(value, key)


@RULE.on_call("append", "extend", "add", "appendleft", "insert", "put")
def check_appended(source: Source, call: ast.Call) -> Iterator[Finding]:
    """``history.append(loss)``."""
    if isinstance(call.func, ast.Attribute) and call.args:
        yield from _judged(source, call, call.func.value, call.args[-1])


@RULE.on_call("update")
def check_updated(source: Source, call: ast.Call) -> Iterator[Finding]:
    """``meter.update(loss)`` of a class of this file that adds it up: ``self.sum += value``."""
    if not isinstance(call.func, ast.Attribute) or not call.args:
        return
    for method in source.flow.methods(call):
        keeps = _kept_parameters(method)
        for parameter, value in zip(method.args.args[1:], call.args, strict=False):
            if parameter.arg in keeps:
                yield from _judged(source, call, call.func.value, value)


def _kept_parameters(method: ast.FunctionDef | ast.AsyncFunctionDef) -> set[str]:
    """Parameters that a method adds to an attribute, or puts into one, as they are."""
    return {
        name.id
        for node in ast.walk(method)
        if isinstance(node, ast.AugAssign) and (key_of(node.target) or "").startswith("self.")
        for name in _plain(node.value)
    } | {
        name.id
        for node in ast.walk(method)
        if isinstance(node, ast.Call)
        and last_name(node.func) in ADDERS
        and (key_of(node.func) or "").startswith("self.")
        for value in node.args
        for name in _plain(value)
    }


def _plain(node: ast.AST) -> Iterator[ast.Name]:
    """Names that a value is made of by arithmetic alone: what a call makes of them (``float(x)``, ``x.item()``) is something else."""
    if isinstance(node, ast.Name):
        yield node
    elif isinstance(node, (ast.BinOp, ast.UnaryOp, ast.Tuple, ast.List)):
        for child in ast.iter_child_nodes(node):
            yield from _plain(child)


@RULE.on_call("backward")
def check_retained(source: Source, call: ast.Call) -> Iterator[Finding]:
    """``loss.backward(retain_graph=True)`` in a loop that hands a state from turn to turn without detaching it."""
    loop = next(source.loops(call), None)
    if loop is None or flag(call, "retain_graph") is not True:
        return
    for node in ast.walk(loop):
        carried = _carried(source, node) if isinstance(node, ast.Assign) else set()
        if carried and not _detached(loop, carried):
            yield at(
                call,
                f"{min(carried)} goes from turn to turn with its graph, which retain_graph keeps: each step is longer and larger "
                "than the last; detach it after the step",
                Level.WARNING,
            )
            return


def _carried(source: Source, node: ast.Assign) -> set[str]:
    """Variables that a forward pass takes and gives back: ``out, h = rnn(x, h)``."""
    value = node.value
    if not isinstance(value, ast.Call) or not is_forward(source, value):
        return set()
    given = {key_of(argument) for argument in value.args}
    targets = [t for target in node.targets for t in getattr(target, "elts", [target])]
    return {key for key in map(key_of, targets) if key is not None and key in given}


def _detached(loop: ast.AST, keys: set[str]) -> bool:
    return any(
        isinstance(node, ast.Attribute)
        and node.attr in {"detach", "detach_", "data"}
        and (key_of(node.value) in keys)
        for node in ast.walk(loop)
    )


def _moves(source: Source, target: ast.Subscript) -> bool:
    """Whether the index changes with the loop, so that entries pile up."""
    return any(
        binding.role is Role.ITEM or binding.augmented
        for inner in ast.walk(target.slice)
        if isinstance(inner, ast.Name)
        for binding in source.flow.reaching(inner)
    )


def _judged(
    source: Source, node: ast.expr | ast.stmt, kept: ast.AST, value: ast.expr
) -> Iterator[Finding]:
    graph = graph_of(source, enclosing(source, node))
    if not graph.has_graph(value) or gradients_off(source, node):
        return
    key = key_of(kept if not isinstance(kept, ast.Call) else kept.func)
    if key is None or _goes_backward(graph, kept) or not _outlives(source, graph, node, kept):
        return
    if _starts_anew(source, node, kept):
        yield at(
            node,
            f"{key} keeps the autograd graph of every step until it is reset; keep .item() or .detach() of it",
            Level.WARNING,
        )
        return
    yield at(
        node,
        f"{key} keeps the autograd graph of every step, and with it the activations: memory grows each iteration; "
        "keep .item() or .detach() of it",
    )


def _starts_anew(source: Source, node: ast.expr | ast.stmt, kept: ast.AST) -> bool:
    """Whether the loop resets what is kept now and then, so that it grows no further: every hundred steps, with the optimizer's step."""
    key, loop = key_of(kept), next(source.loops(node), None)
    if loop is None:
        return False
    reset = any(
        binding.role is Role.VALUE
        and not binding.augmented
        and source.within(binding.owner, loop)
        and not _accumulates(binding.value, key)
        for binding in source.flow.reaching(kept)
    )
    return reset or any(
        key_of(receiver(call) or call) == key and source.within(call, loop)
        for call in source.calls_named("clear")
    )


def _goes_backward(graph: Graph, kept: ast.AST) -> bool:
    """Whether ``backward`` is called on the kept thing itself: then its graph is wanted."""
    keys = {binding.key for binding in graph.direct}
    return key_of(kept) in keys


def _outlives(source: Source, graph: Graph, node: ast.AST, kept: ast.AST) -> bool:
    """Whether what keeps it lasts longer than one turn of the loop in which backward runs."""
    key = key_of(kept)
    if (
        key is not None
        and key.startswith("self.")
        and not _bound_in(source, kept, enclosing(source, node))
    ):
        return True
    if _comes_from_outside(source, node, kept):
        return True
    for loop in source.loops(node):
        consumed = any(source.within(call, loop) for call in graph.calls) or not graph.calls
        if consumed and not _bound_in(source, kept, loop):
            return True
    return False


def _comes_from_outside(source: Source, node: ast.AST, kept: ast.AST) -> bool:
    """Whether a function that runs backward puts it into a list of its caller's, or of the scope around it."""
    function = enclosing(source, node)
    return (
        isinstance(kept, ast.Name)
        and isinstance(kept.ctx, ast.Load)  # put into, and not itself given a new value here
        and isinstance(function, DEFINITIONS)
        and kept.id not in source.flow.bindings.get(function, ())
    )


def _bound_in(source: Source, kept: ast.AST, region: ast.AST) -> bool:
    """Whether ``region`` gives the keeper a fresh value (an accumulation is none)."""
    key = key_of(kept)
    return any(
        binding.role is not Role.PARAMETER
        and not binding.augmented
        and source.within(binding.owner, region)
        and _every_turn(source, binding, kept)
        and not (isinstance(region, LOOPS) and binding.owner is region)
        and not _accumulates(binding.value, key)
        for binding in source.flow.reaching(kept)
    )


def _every_turn(source: Source, binding: Binding, kept: ast.AST) -> bool:
    """Whether a reset runs whenever what is kept grows, and not only every hundred steps."""
    taken = source.flow.branches(source.statement(kept))
    return all(taken.get(node) == arm for node, arm in source.flow.branches(binding.owner).items())


def _accumulates(value: ast.AST | None, key: str | None) -> bool:
    return value is not None and any(
        key_of(n) == key
        for n in ast.walk(value)
        if isinstance(n, (ast.Name, ast.Attribute, ast.Subscript))
    )
