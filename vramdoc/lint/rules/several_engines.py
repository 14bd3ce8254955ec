"""VD505: several inference engines that each claim most of one GPU."""

from __future__ import annotations

import ast
from collections.abc import Iterator

from vramdoc.lint.finding import Finding, at
from vramdoc.lint.literals import number
from vramdoc.lint.rule import Example, Rule
from vramdoc.lint.source import COMPREHENSIONS, Source, argument, last_name
from vramdoc.lint.violation import Level

RULE = Rule(
    id="VD505",
    name="several-engines-on-one-gpu",
    title="several engines whose shares of one GPU exceed it",
    level=Level.WARNING,
    why="""
    An engine reserves its share of the card when it starts: vLLM 0.9 of all memory unless told otherwise, SGLang about as much. A second one finds too
    little left and fails at start-up, or in its first large batch.
    """,
    instead="Give each engine a share (`gpu_memory_utilization=0.45`), shut the first one down before the second starts, or put them on different GPUs.",
    bad=(
        Example(
            code="""
from vllm import LLM

chat = LLM("chat-model")
judge = LLM("judge-model", gpu_memory_utilization=0.5)  # VD505
"""
        ),
        Example(
            code="""
import vllm

engines = [vllm.LLM(name) for name in ("a", "b")]  # VD505
"""
        ),
    ),
    good=(
        Example(
            code="""
from vllm import LLM

chat = LLM("chat-model", gpu_memory_utilization=0.45)
judge = LLM("judge-model", gpu_memory_utilization=0.45)
"""
        ),
        Example(
            code="""
from vllm import LLM


def first():
    return LLM("chat-model").generate("a")


def second():
    return LLM("judge-model").generate("b")
"""
        ),
    ),
    words=("vllm", "sglang"),
    limits="Engines started in one function (or at the top of a file), without `del`, `shutdown` or a choice of GPU between them.",
)
_ENGINES = {
    "LLM": "gpu_memory_utilization",
    "EngineArgs": "gpu_memory_utilization",
    "AsyncEngineArgs": "gpu_memory_utilization",
    "Engine": "mem_fraction_static",
}
"""Classes of vLLM and SGLang, with the option that sets an engine's share."""
_DEFAULT_SHARE = 0.9
"""vLLM's default gpu_memory_utilization; SGLang chooses about as much."""


@RULE.on_source
def check(source: Source) -> Iterator[Finding]:
    """Engines of one function whose shares add up to more than the card."""
    taken: dict[ast.AST | None, float] = {}
    for call in source.calls_named(*_ENGINES):
        option = _ENGINES[last_name(call.func)] if _is_engine(source, call) else None
        if option is None or argument(call, "device") is not None:
            continue
        share = _share(source, call, option)
        function = source.function(call)
        repeated = _kept_in_loop(source, call) or _started_often(source, function)
        total = taken.get(function, 0.0) + share * (2 if repeated else 1)
        if (
            total > 1.0 + 1e-9
            and (repeated or function in taken)
            and not _made_room(source, call, function)
        ):
            yield at(
                call,
                f"engines of one process claim {total:.2f} of the GPU together ({option}, {_DEFAULT_SHARE} where not given); "
                "give each a share, or end one before the next starts",
            )
        taken[function] = total


def _is_engine(source: Source, call: ast.Call) -> bool:
    module = (source.qualname(call.func) or "").partition(".")[0]
    return module == ("sglang" if last_name(call.func) == "Engine" else "vllm")


def _started_often(source: Source, function: ast.AST | None) -> bool:
    """Whether the function is the target of more than one process of the file, all on the GPUs that this one sees."""
    if function is None or any(
        isinstance(n, ast.Constant) and n.value == "CUDA_VISIBLE_DEVICES"
        for n in source.nodes.get(ast.Constant, ())
    ):
        return False
    starts = 0
    for call in source.calls_named("Process"):
        target = argument(call, "target", 1)
        if isinstance(target, ast.Name) and function in source.definitions.get(target.id, ()):
            in_turn = any(isinstance(up, COMPREHENSIONS) for up in source.ancestors(call))
            starts += 2 if in_turn or next(source.loops(call), None) is not None else 1
    return starts > 1


def _share(source: Source, call: ast.Call, option: str) -> float:
    given = argument(call, option)
    value = number(source, given)
    if value is not None:
        return float(value)
    return (
        _DEFAULT_SHARE if given is None and not any(k.arg is None for k in call.keywords) else 0.0
    )


def _kept_in_loop(source: Source, call: ast.Call) -> bool:
    """Whether a loop or comprehension makes engine after engine and keeps them."""
    for up in source.ancestors(call):
        if isinstance(up, COMPREHENSIONS):
            return True
        if isinstance(up, ast.stmt):
            break
    stored = source.parents[call]
    return next(source.loops(call), None) is not None and (
        (isinstance(stored, ast.Call) and last_name(stored.func) == "append")
        or (
            isinstance(stored, ast.Assign)
            and any(isinstance(t, ast.Subscript) for t in stored.targets)
        )
    )


def _made_room(source: Source, call: ast.Call, function: ast.AST | None) -> bool:
    """Whether something before the call ends an engine or chooses another GPU."""
    here = source.position[call]
    ends = (
        *source.nodes.get(ast.Delete, ()),
        *source.calls_named(
            "shutdown",
            "destroy_model_parallel",
            "cleanup_dist_env_and_memory",
            "sleep",
            "set_device",
        ),
    )
    chosen = (
        n
        for n in source.nodes.get(ast.Constant, ())
        if isinstance(n, ast.Constant) and n.value == "CUDA_VISIBLE_DEVICES"
    )
    return any(
        source.position[node] < here and source.function(node) is function
        for node in (*ends, *chosen)
    )
