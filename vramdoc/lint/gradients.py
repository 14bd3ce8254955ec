"""What carries an autograd graph: which calls are forward passes of a module, what ``backward`` was called on, where gradients are off.

Does not know the modules themselves: a module is recognised by what the file does with it (``.eval()``, ``.parameters()``), by how it was made,
or by its name.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from typing import TYPE_CHECKING

from vramdoc.lint.bindings import Binding, Role, key_of, root_of
from vramdoc.lint.source import DEFINITIONS, last_name, once_a_file, receiver

if TYPE_CHECKING:
    from vramdoc.lint.source import Source

_WITHOUT_GRADIENTS = frozenset({"validation_step", "test_step", "predict_step"})
"""Methods that Lightning runs under inference_mode or no_grad (Trainer(inference_mode=True), its default)."""
_OFF = re.compile(r"no_grad|inference_mode|disable_grad|without_grad|torch_no_grad")
_MODULE_METHODS = (
    "eval",
    "train",
    "parameters",
    "named_parameters",
    "state_dict",
    "load_state_dict",
    "zero_grad",
)
_MODULE_NAME = re.compile(
    r"(^|_)(model|net|network|module|encoder|decoder|generator|discriminator|backbone|unet|vae|transformer|classifier|critic|actor|policy"
    r"|student|teacher|rnn|lstm|gru|cnn|mlp|autoencoder|detector|regressor|lm|llm|resnet\d*|vit|clip|bert|gpt\d?|nn)$",
    re.IGNORECASE,
)
_VERB = re.compile(
    r"_*(load|get|build|create|make|add|init|set|save|compile|export|convert|prepare|wrap|register|fetch|download|parse|validate|check|test|run|train|eval"
    r"|trace|script|import|define|setup|find|update|is|has|to|from|use|copy|move|log|print|list|count|call|apply|push|show|new|merge|patch|replace|unwrap)(_|$)",
    re.IGNORECASE,
)
"""First words of functions about modules, which are none themselves: ``load_model``."""
_DROPS = frozenset({
    "item", "tolist", "detach", "detach_", "numpy", "argmax", "argmin", "argsort", "data_ptr", "size", "numel", "dim", "eq", "ne", "gt", "lt", "ge", "le",
    "int", "long", "bool", "round", "sign", "stop_gradient", "nonzero", "isnan", "isinf", "isfinite", "no_grad", "element_size", "type", "equal", "allclose",
    "result", "update", "compute", "accuracy", "accuracy_score", "float_", "state_dict", "backward", "format", "join", "decode", "batch_decode", "generate",
})  # fmt: skip
"""Methods and functions whose result has no graph, or whose result is not the tensor at all."""
_KEPT_ATTRIBUTES = frozenset(
    {
        "T",
        "mT",
        "H",
        "real",
        "imag",
        "logits",
        "loss",
        "last_hidden_state",
        "pooler_output",
        "hidden_states",
        "sample",
    }
)


_ENTRIES = frozenset({"items", "values"})


def gradients_off(source: Source, node: ast.AST, depth: int = 4) -> bool:
    """Whether ``node`` runs without gradients: in a ``with``, under a decorator, after a switch, or because all its callers do."""
    for up in source.ancestors(node):
        if isinstance(up, (ast.With, ast.AsyncWith)) and any(
            _switches_off(source, item.context_expr) for item in up.items
        ):
            return True
        if isinstance(up, (*DEFINITIONS, ast.ClassDef)) and any(
            _switches_off(source, d) for d in up.decorator_list
        ):
            return True
    if getattr(enclosing(source, node), "name", "") in _WITHOUT_GRADIENTS:
        return True
    if any(
        _switched_off_before(source, call, node)
        for call in source.calls_named("set_grad_enabled", "_set_grad_enabled")
    ):
        return True
    function = source.function(node)
    sites = source.flow.call_sites(function) if function is not None else ()
    return (
        depth > 0 and bool(sites) and all(gradients_off(source, site, depth - 1) for site in sites)
    )


def _switches_off(source: Source, node: ast.AST) -> bool:
    call = node if isinstance(node, ast.Call) else None
    name = (source.qualname(call.func if call else node) or "").rpartition(".")[2]
    if name == "set_grad_enabled":
        return call is not None and bool(call.args) and not _is_true(call.args[0])
    if name == "inference_mode" and call is not None and call.args:
        return not _is_false(call.args[0])
    if _OFF.search(name):
        return True
    if isinstance(node, ast.Name):
        return any(
            o.node is not node and _switches_off(source, o.node) for o in source.flow.origins(node)
        )
    return isinstance(node, ast.IfExp) and _switches_off(source, node.body)


def _is_true(node: ast.AST) -> bool:
    return isinstance(node, ast.Constant) and node.value is True


def _is_false(node: ast.AST) -> bool:
    return isinstance(node, ast.Constant) and node.value is False


def _switched_off_before(source: Source, call: ast.Call, node: ast.AST) -> bool:
    if (
        not call.args
        or not _is_false(call.args[0])
        or isinstance(source.parents[call], ast.withitem)
    ):
        return False
    function = source.function(call)
    if function is None:
        return source.function(node) is not None or source.position[call] < source.position[node]
    return function is source.function(node) and source.position[call] < source.position[node]


# Modules


def is_module(source: Source, node: ast.AST) -> bool:
    """Whether an expression is a torch.nn.Module."""
    key = key_of(node)
    if key is None:
        return False
    if key in _module_keys(source):
        return True
    root = root_of(key)
    if root in source.imports or (root == key and root in source.definitions):
        return False
    made = [o.node for o in source.flow.origins(node) if o.role is Role.VALUE]
    if any(isinstance(m, ast.Call) and _makes_module(source, m) for m in made):
        return True
    if _VERB.match(last_name(node)):
        return False
    unknown = not any(
        isinstance(m, (ast.Call, ast.Constant, ast.Lambda, ast.Dict, ast.List)) for m in made
    )
    return unknown and _MODULE_NAME.search(last_name(node)) is not None


@once_a_file
def _module_keys(source: Source) -> set[str]:
    return {
        key
        for call in source.calls_named(*_MODULE_METHODS)
        if (target := receiver(call)) is not None and (key := key_of(target)) is not None
    }


def _makes_module(source: Source, call: ast.Call) -> bool:
    name = source.qualname(call.func) or ""
    if name.startswith(("torch.nn.", "torchvision.models.", "torch.jit.", "torch.hub.", "timm.")):
        return not name.startswith("torch.nn.functional")
    if name.endswith(".from_pretrained"):
        return "okeniz" not in name and "rocessor" not in name and "Config" not in name
    if isinstance(call.func, ast.Name) and _is_module_class(source, call.func.id):
        return True
    target = receiver(call)
    if target is not None and last_name(call.func) == "eval" and not call.args:
        return True  # nothing else has an eval() without arguments
    chained = last_name(call.func) in {
        "eval",
        "cuda",
        "to",
        "half",
        "train",
        "float",
        "bfloat16",
        "requires_grad_",
        "compile",
    }
    return chained and isinstance(target, ast.Call) and _makes_module(source, target)


def _is_module_class(source: Source, name: str) -> bool:
    return any(
        isinstance(owner, ast.ClassDef)
        and owner.name == name
        and any((source.qualname(base) or "").endswith("Module") for base in owner.bases)
        for owner in source.nodes.get(ast.ClassDef, ())
    )


def is_forward(source: Source, call: ast.Call) -> bool:
    """Whether ``call`` is a forward pass: a module called, or its ``forward``."""
    callee = call.func
    if isinstance(callee, ast.Attribute) and callee.attr == "forward":
        return is_module(source, callee.value)
    if isinstance(callee, (ast.Name, ast.Attribute)) and not source.flow.called(call):
        return (call.args != [] or call.keywords != []) and is_module(source, callee)
    return False


# Backward


def backwards(source: Source, scope: ast.AST) -> Iterator[tuple[ast.Call, set[Binding]]]:
    """Calls of ``backward`` in ``scope``, each with the bindings of what it was called on."""
    for call in source.calls_named("backward", "manual_backward", "_backward", "scale_loss"):
        if not source.within(call, scope):
            continue
        target = receiver(call)
        # loss.backward(gradient) against engine.backward(loss) and torch.autograd.backward(loss)
        takes_loss = last_name(call.func) != "backward" or (
            target is not None and _is_driver(source, target)
        )
        carriers: list[ast.AST] = [*call.args] if takes_loss and call.args else [target or call]
        yield (
            call,
            {
                binding
                for carrier in carriers
                for inner in ast.walk(carrier)
                if isinstance(inner, (ast.Name, ast.Attribute, ast.Subscript))
                for binding in source.flow.reaching(inner)
                if binding.role in {Role.VALUE, Role.PART} or binding.augmented
            },
        )


def _is_driver(source: Source, node: ast.expr) -> bool:
    """Whether ``backward`` of an object takes the loss: an Accelerator, a Fabric, an engine, by what it is or by its name."""
    made = [o.node for o in source.flow.origins(node) if isinstance(o.node, ast.Call)]
    return _DRIVER.search(last_name(node)) is not None or any(
        (source.qualname(call.func) or "").partition(".")[0] in _DRIVER_PACKAGES for call in made
    )


_DRIVER_PACKAGES = frozenset(
    {"accelerate", "lightning", "lightning_fabric", "deepspeed", "colossalai"}
)
_CRITERION = re.compile(r"crit|loss(_?fn|_?func)?$|objective", re.IGNORECASE)


_DRIVER = re.compile(
    r"accelerator|fabric|engine|trainer|^self$|^amp$|^autograd$|optim|scaler|manager|booster|strategy|model|precision|plugin|deepspeed|^ds_",
    re.IGNORECASE,
)
"""Names of objects whose ``backward`` takes the loss."""


class Graph:
    """The bindings of one function whose values carry a graph that ``backward`` went through."""

    def __init__(self, source: Source, scope: ast.AST) -> None:
        self.source = source
        self.calls: list[ast.Call] = []
        self.direct: set[Binding] = set()
        for call, bindings in backwards(source, scope):
            self.calls.append(call)
            self.direct |= bindings
        if isinstance(scope, DEFINITIONS) and scope.name in {"training_step", "compute_loss"}:
            self.direct |= self._returned(scope)
        self.carrying = set(self.direct)
        pending = list(self.direct)
        while pending:
            for binding in self._behind(pending.pop()):
                if binding not in self.carrying:
                    self.carrying.add(binding)
                    pending.append(binding)

    def _returned(self, function: ast.FunctionDef | ast.AsyncFunctionDef) -> set[Binding]:
        return {
            binding
            for value in self.source.flow.returned(function)
            for inner in ast.walk(value)
            if isinstance(inner, ast.Name)
            for binding in self.source.flow.reaching(inner)
            if binding.role in {Role.VALUE, Role.PART}
        }

    def _behind(self, binding: Binding) -> Iterator[Binding]:
        """Bindings that a binding was computed from, as far as they come out of a forward pass."""
        for inner in ast.walk(binding.value) if isinstance(binding.value, ast.expr) else ():
            if isinstance(inner, (ast.Name, ast.Attribute)):
                yield from filter(self._forwarded, self.source.flow.reaching(inner))

    def _forwarded(self, binding: Binding) -> bool:
        return (
            binding.role in {Role.VALUE, Role.PART}
            and isinstance(binding.value, ast.expr)
            and any(
                isinstance(node, ast.Call) and is_forward(self.source, node)
                for node in ast.walk(binding.value)
            )
        )

    def has_graph(self, node: ast.AST, depth: int = 8) -> bool:
        """Whether the value of ``node`` certainly carries a graph."""
        if depth == 0:
            return False
        if isinstance(node, (ast.Name, ast.Attribute, ast.Subscript)):
            reaching = self.source.flow.reaching(node)
            if reaching:
                return all(self._carries(binding, depth) for binding in reaching)
            if isinstance(node, ast.Attribute):
                return node.attr in _KEPT_ATTRIBUTES and self.has_graph(node.value, depth - 1)
            return isinstance(node, ast.Subscript) and self.has_graph(node.value, depth - 1)
        if isinstance(node, ast.Call):
            return self._call(node, depth - 1)
        if isinstance(node, ast.DictComp):
            return self.has_graph(node.value, depth - 1)
        if isinstance(node, ast.ListComp):
            return self.has_graph(node.elt, depth - 1)
        if isinstance(
            node,
            (
                ast.BinOp,
                ast.UnaryOp,
                ast.Tuple,
                ast.List,
                ast.Dict,
                ast.IfExp,
                ast.NamedExpr,
                ast.Starred,
            ),
        ):
            children = (c for c in ast.iter_child_nodes(node) if isinstance(c, ast.expr))
            return any(self.has_graph(child, depth - 1) for child in children)
        return False

    def _carries(self, binding: Binding, depth: int) -> bool:
        if binding in self.carrying:
            return True
        if binding.role is Role.ITEM and isinstance(binding.value, ast.Call):
            # for name, loss in losses.items()
            held = receiver(binding.value) if last_name(binding.value.func) in _ENTRIES else None
            return held is not None and self.has_graph(held, depth - 1)
        plain = binding.role is Role.VALUE and not binding.augmented
        return (
            plain
            and isinstance(binding.value, ast.expr)
            and self.has_graph(binding.value, depth - 1)
        )

    def _call(self, call: ast.Call, depth: int) -> bool:
        if last_name(call.func) in _DROPS:
            return False
        if is_forward(self.source, call):
            return False  # a graph of its own, which nothing has gone through
        for function in self.source.flow.called(call):
            # A step function that runs backward and hands the loss out.
            inner = graph_of(self.source, function)
            if inner.calls and any(map(inner.has_graph, self.source.flow.returned(function))):
                return True
        name = self.source.qualname(call.func) or ""
        values: list[ast.AST] = []
        target = receiver(call)
        if target is not None and not name.startswith("torch."):
            values.append(target)
        if name.startswith("torch.") or _CRITERION.search(last_name(call.func)):
            values.extend(call.args)
        return any(self.has_graph(value, depth) for value in values)


def graph_of(source: Source, scope: ast.AST) -> Graph:
    """The graph of a function, worked out once."""
    found = source.memo.get(("graph", scope))
    if not isinstance(found, Graph):
        found = source.memo[("graph", scope)] = Graph(source, scope)
    return found


def enclosing(source: Source, node: ast.AST) -> ast.AST:
    """The named function around ``node``, or the module."""
    return next(
        (up for up in source.ancestors(node) if isinstance(up, (*DEFINITIONS, ast.Module))),
        source.tree,
    )
