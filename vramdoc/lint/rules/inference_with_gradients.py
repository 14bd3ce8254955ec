"""VD302: inference that records an autograd graph."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator

from vramdoc.lint.bindings import key_of
from vramdoc.lint.finding import Finding, at
from vramdoc.lint.gradients import enclosing, gradients_off, is_forward
from vramdoc.lint.rule import Example, Rule
from vramdoc.lint.source import DEFINITIONS, Source, last_name, receiver
from vramdoc.lint.violation import Level

_INFERENCE = re.compile(
    r"^_?(predict|infer|inference|evaluate|evaluation|validate|validation|eval|run_inference)(_|$)|^test$|_(inference|eval|evaluate|predict)$"
)

RULE = Rule(
    id="VD302",
    name="inference-with-gradients",
    title="inference without no_grad or inference_mode",
    level=Level.WARNING,
    why="""
    `eval()` changes dropout and batch norm; it does not switch autograd off. Every forward pass then keeps its activations for a backward
    that never comes: often several times the memory, and more with each batch when outputs are collected.
    """,
    instead="Decorate the function with `@torch.inference_mode()`, or put the calls in `with torch.no_grad():`.",
    bad=(
        Example(
            code="""
import torch


def evaluate(model, loader):
    model.eval()
    right = 0
    for x, y in loader:
        right += (model(x.cuda()).argmax(1) == y.cuda()).sum().item()  # VD302
    return right
"""
        ),
        Example(
            code="""
import torch


def predict(net, loader):
    return torch.cat([net(b.to("cuda")).cpu() for b in loader])  # VD302
"""
        ),
        Example(
            code="""
import torch
import torchvision
from flask import Flask, request

app = Flask(__name__)
net = torchvision.models.resnet50(weights="DEFAULT").cuda()
net.eval()


@app.post("/")
def classify():
    image = torch.frombuffer(bytearray(request.data), dtype=torch.uint8)
    return {"class": net(image.view(1, 3, 224, 224).cuda() / 255).argmax().item()}  # VD302
"""
        ),
    ),
    good=(
        Example(
            code="""
import torch


@torch.inference_mode()
def predict(net, loader):
    return torch.cat([net(b.to("cuda")).cpu() for b in loader])


def evaluate(model, loader):
    model.eval()
    with torch.no_grad():
        return [model(x).argmax(1) for x in loader]
"""
        ),
        Example(
            code="""
import lightning


class Classifier(lightning.LightningModule):
    def predict_step(self, batch, index):
        self.net.eval()
        return self.net(batch)
"""
        ),
        Example(
            code="""
import torch


def saliency(model, x):
    model.eval()
    x.requires_grad_()
    model(x).sum().backward()
    return x.grad
"""
        ),
    ),
    words=("eval",),
    names=_INFERENCE,
    pattern=re.compile(
        r"\.eval\(\)|def _?(?:predict|infer|eval|valid|test\(|run_inf)|def \w+_(?:inference|eval|evaluate|predict)\b"
    ),
    limits="Gradients switched off by a caller in another file are not seen.",
)
_LOSS = re.compile(r"crit(erion)?$|loss(_?f(n|ct|unc)?)?$", re.IGNORECASE)
"""Modules without parameters, whose result has a graph only where the model's has."""
_USES_GRADIENTS = ("backward", "requires_grad_", "manual_backward", "zero_grad")
_OWN_FORWARD = frozenset({"forward", "__call__", "training_step", "compute_loss", "loss"})


@RULE.on_source
def check(source: Source) -> Iterator[Finding]:
    """The first forward pass of each module in a function that only infers."""
    if "torch" not in source.imported_modules:
        return
    seen: set[tuple[ast.AST, str | None]] = set()
    evaluated = _evaluated_keys(source)
    named = {
        f
        for name, defined in source.definitions.items()
        if _INFERENCE.search(name)
        for f in defined
    }
    for node in source.nodes.get(ast.Call, ()) if evaluated or named else ():
        assert isinstance(node, ast.Call)
        module = _module(node)
        key = key_of(module)
        if key is None or (key not in evaluated and not named) or _LOSS.search(key):
            continue
        scope = enclosing(source, node)
        if (
            (key in evaluated or scope in named)
            and (scope, key) not in seen
            and _is_inference(source, node, module, scope)
        ):
            seen.add((scope, key))
            yield at(
                node,
                f"{key} runs for inference with autograd on: activations are kept for a backward that never comes; "
                "use torch.inference_mode() or torch.no_grad()",
            )


def _evaluated_keys(source: Source) -> set[str | None]:
    """Variables put into eval mode: ``net.eval()``, ``net = Net().eval()``, ``net.train(False)``."""
    switched = (receiver(call) for call in source.calls_named("eval", "train"))
    assigned = (
        target
        for node in source.nodes.get(ast.Assign, ())
        if isinstance(node, ast.Assign) and _evaluated(node.value)
        for target in node.targets
    )
    return {key_of(node) for node in (*switched, *assigned) if node is not None}


def _is_inference(source: Source, call: ast.Call, module: ast.AST, scope: ast.AST) -> bool:
    if isinstance(scope, DEFINITIONS) and _differentiated(source, scope):
        return False
    return (
        is_forward(source, call)
        and _infers(source, call, module, scope)
        and not _wants_gradients(source, call, scope)
        and not gradients_off(source, call)
    )


def _differentiated(source: Source, scope: ast.FunctionDef | ast.AsyncFunctionDef) -> bool:
    """Whether the function is a module's own forward pass, which the caller may differentiate, or one that Lightning runs without gradients."""
    owner = source.class_of(scope)
    plain = owner is not None and not any(
        "Module" in (source.qualname(base) or "") for base in owner.bases
    )
    return scope.name in _OWN_FORWARD and not (scope.name == "__call__" and plain)


def _module(call: ast.Call) -> ast.AST:
    callee = call.func
    return (
        callee.value if isinstance(callee, ast.Attribute) and callee.attr == "forward" else callee
    )


def _infers(source: Source, call: ast.Call, module: ast.AST, scope: ast.AST) -> bool:
    """Whether the module was put into eval mode last, or the function's name says inference."""
    key = key_of(module)
    modes = [
        other
        for other in source.calls_named("eval", "train")
        if key_of(receiver(other) or other) == key
    ]
    own = [
        other
        for other in modes
        if enclosing(source, other) is scope and source.position[other] < source.position[call]
    ]
    # A module of the file's top level, which the function uses as it is when the file has run.
    shared = isinstance(module, ast.Name) and not source.flow.is_local(module)
    settled = own or [
        other for other in modes if shared and enclosing(source, other) is source.tree
    ]
    if settled and (own or len(settled) == len(modes)):
        last = max(settled, key=lambda other: source.position[other])
        return last_name(last.func) == "eval" or _is_false(last)
    if any(_evaluated(origin.node) for origin in source.flow.origins(module)):
        return True
    if key is not None and key.startswith("self.") and _evaluated_in_class(source, call, key):
        return True
    repeated = next(source.loops(call), None) is not None or _in_comprehension(source, call)
    return isinstance(scope, DEFINITIONS) and _INFERENCE.search(scope.name) is not None and repeated


def _is_false(call: ast.Call) -> bool:
    return (
        bool(call.args) and isinstance(call.args[0], ast.Constant) and call.args[0].value is False
    )


def _evaluated(node: ast.AST) -> bool:
    """``Net().cuda().eval()``."""
    while isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute):
        if node.func.attr == "eval" and not node.args:
            return True
        node = node.func.value
    return False


def _evaluated_in_class(source: Source, call: ast.Call, key: str) -> bool:
    """Whether another method puts the module into eval mode, none back, and the class is no module itself."""
    owner = source.class_of(call)
    if owner is None or any("Module" in (source.qualname(base) or "") for base in owner.bases):
        return False
    modes = {
        last_name(other.func)
        for other in source.calls_named("eval", "train")
        if key_of(receiver(other) or other) == key and source.class_of(other) is owner
    }
    return modes == {"eval"}


def _in_comprehension(source: Source, node: ast.AST) -> bool:
    return any(
        isinstance(up, (ast.ListComp, ast.GeneratorExp, ast.DictComp, ast.SetComp))
        for up in source.ancestors(node)
    )


def _wants_gradients(source: Source, call: ast.Call, scope: ast.AST) -> bool:
    """Whether the function differentiates: then eval mode may be on purpose (attributions, adversarial inputs)."""
    for other in source.calls_named(*_USES_GRADIENTS):
        if enclosing(source, other) is scope and source.position[other] > source.position[call]:
            return True
    if any(
        (source.qualname(c.func) or "").startswith(("torch.autograd", "torch.func"))
        for c in source.calls_named("grad", "jacobian", "vjp", "jvp")
    ):
        return True
    frozen = any(
        last_name(c.func) == "requires_grad_" and _is_false(c)
        for c in source.calls_named("requires_grad_")
    )
    return frozen or any(
        isinstance(node, ast.Attribute)
        and node.attr in {"requires_grad", "grad"}
        and isinstance(node.ctx, (ast.Store, ast.Load))
        and enclosing(source, node) is scope
        for node in source.nodes.get(ast.Attribute, ())
    )
