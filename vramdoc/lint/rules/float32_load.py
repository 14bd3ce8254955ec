"""VD501: a checkpoint loaded without saying in which dtype."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator

from vramdoc.lint.bindings import key_of
from vramdoc.lint.devices import cuda
from vramdoc.lint.finding import Finding, at
from vramdoc.lint.literals import texts
from vramdoc.lint.rule import Example, Rule
from vramdoc.lint.source import Source, argument, last_name, receiver
from vramdoc.lint.violation import Level

RULE = Rule(
    id="VD501",
    name="float32-load",
    title="checkpoint loaded in float32",
    level=Level.WARNING,
    why="""
    Without a dtype, `from_pretrained` of transformers before 5 and of diffusers loads float32, whatever the file holds: a bfloat16 checkpoint
    takes twice its size. transformers 5 takes the file's own dtype (`dtype="auto"`).
    """,
    instead='Pass `dtype="auto"` (`torch_dtype="auto"` before transformers 4.56), or the dtype you mean.',
    bad=(
        Example(
            code="""
from transformers import AutoModelForCausalLM

model = AutoModelForCausalLM.from_pretrained("checkpoint-dir", device_map="cuda:0")  # VD501
"""
        ),
        Example(
            code="""
import torch
from diffusers import DiffusionPipeline as Pipe

device = "cuda" if torch.cuda.is_available() else "cpu"
pipe = Pipe.from_pretrained("pipeline-dir")  # VD501
pipe.to(device)
"""
        ),
    ),
    good=(
        Example(
            code="""
import torch
from transformers import AutoModelForCausalLM, AutoTokenizer

tokenizer = AutoTokenizer.from_pretrained("checkpoint-dir")
model = AutoModelForCausalLM.from_pretrained(
    "checkpoint-dir", dtype=torch.bfloat16, device_map="cuda:0"
)
small = AutoModelForCausalLM.from_pretrained("checkpoint-dir").half().cuda()
"""
        ),
    ),
    words=("from_pretrained", "pipeline"),
    limits="Only models that the file moves to a GPU. Families published in float32 (gpt2, bert, t5 ...) are known by name and left alone.",
)
_DTYPE_KEYWORDS = (
    "dtype",
    "torch_dtype",
    "quantization_config",
    "load_in_8bit",
    "load_in_4bit",
    "model_kwargs",
)
_NOT_A_MODEL = re.compile(
    r"Tokenizer|Processor|Config|FeatureExtractor|Scheduler|ImageProcessor|PeftModel|ModularPipeline"
)
_FLOAT32_FAMILIES = re.compile(
    r"(^|/)(distil)?(gpt2|bert|roberta|xlm-roberta|albert|electra|deberta|t5|flan-t5|bart|mbart|marian|opus-mt|pegasus|blenderbot|clip|vit|resnet|wav2vec2|"
    r"hubert|all-minilm|all-mpnet|bge-(small|base)|e5-(small|base)|sentence-t5|paraphrase)([-_/]|$)",
    re.IGNORECASE,
)
"""Whose published weights are float32, so that nothing is doubled."""
_OFFLOADS = frozenset({"enable_model_cpu_offload", "enable_sequential_cpu_offload"})
"""Methods of diffusers' pipelines that bring their parts to the GPU one by one."""
_CASTS = frozenset({"half", "bfloat16", "to_empty", "float8"})


@RULE.on_call("from_pretrained")
def check(source: Source, call: ast.Call) -> Iterator[Finding]:
    """Models put on a GPU without a word about their dtype."""
    owner = receiver(call)
    name = source.qualname(owner) if owner is not None else None
    if (
        name is None
        or not name.startswith(("transformers.", "diffusers."))
        or _NOT_A_MODEL.search(name)
    ):
        return
    explicit = argument(call, "dtype") or argument(call, "torch_dtype")
    if (
        explicit is not None
        and source.qualname(explicit) in {"torch.float32", "torch.float"}
        and _on_gpu(source, call)
    ):
        yield at(
            call,
            "loaded in float32 on purpose: a 16-bit checkpoint takes twice its size",
            Level.INFO,
        )
    model = argument(call, "pretrained_model_name_or_path", 0)
    if _says_dtype(call) or model is None or _published_in_float32(source, model):
        return
    chosen = any(True for _ in source.calls_named("set_default_dtype", "set_default_torch_dtype"))
    if not chosen and _on_gpu(source, call) and not _cast_later(source, call):
        yield at(
            call,
            f"{last_name(owner) if owner is not None else name}.from_pretrained without dtype loads float32 (transformers before 5, diffusers): "
            'a 16-bit checkpoint takes twice its size; pass dtype="auto"',
        )


@RULE.on_call("pipeline")
def check_pipeline(source: Source, call: ast.Call) -> Iterator[Finding]:
    """``transformers.pipeline(task, model=..., device=0)``."""
    if source.qualname(call.func) not in {
        "transformers.pipeline",
        "transformers.pipelines.pipeline",
    } or _says_dtype(call):
        return
    model = argument(call, "model", 1)
    written = model is not None and bool(texts(source, model))
    if model is None or not written or _published_in_float32(source, model):
        return
    if cuda(source, argument(call, "device")) or argument(call, "device_map") is not None:
        yield at(
            call,
            'pipeline() without dtype loads float32 (transformers before 5): a 16-bit checkpoint takes twice its size; pass dtype="auto"',
        )


def _says_dtype(call: ast.Call) -> bool:
    return any(keyword.arg in _DTYPE_KEYWORDS or keyword.arg is None for keyword in call.keywords)


def _published_in_float32(source: Source, model: ast.AST) -> bool:
    known = texts(source, model)
    return bool(known) and all(_FLOAT32_FAMILIES.search(text) for text in known)


def _on_gpu(source: Source, call: ast.Call) -> bool:
    """By device_map, by a chained call, or by a later ``model.to(...)``."""
    where = argument(call, "device_map")
    if where is not None:
        return cuda(source, where) is not False or any(
            text in {"auto", "balanced"} for text in texts(source, where)
        )
    return any(_moves(source, later) for later in _later_calls(source, call))


def _moves(source: Source, call: ast.Call) -> bool:
    name = last_name(call.func)
    if name in {"cuda", *_OFFLOADS}:
        return True
    return name == "to" and any(
        cuda(source, value) for value in (*call.args, *(k.value for k in call.keywords))
    )


def _cast_later(source: Source, call: ast.Call) -> bool:
    return any(
        last_name(later.func) in _CASTS or _names_dtype(source, later)
        for later in _later_calls(source, call)
    )


def _names_dtype(source: Source, call: ast.Call) -> bool:
    """``.to(torch.bfloat16)``, ``.to(dtype=...)``, ``.to(device, dtype)``."""
    if last_name(call.func) != "to":
        return False
    return (
        argument(call, "dtype") is not None
        or len(call.args) > 1
        or any(
            (source.qualname(value) or "").startswith("torch.")
            for value in call.args
            if isinstance(value, ast.Attribute)
        )
    )


def _later_calls(source: Source, call: ast.Call) -> Iterator[ast.Call]:
    """Methods chained to the load, then those called on the variable that received it."""
    node: ast.AST = call
    while True:
        attribute = source.parents[node]
        parent = source.parents.get(attribute)
        if not (
            isinstance(attribute, ast.Attribute)
            and isinstance(parent, ast.Call)
            and parent.func is attribute
        ):
            break
        yield parent
        node = parent
    statement = source.parents[node]
    if not isinstance(statement, (ast.Assign, ast.AnnAssign)):
        return
    targets = statement.targets if isinstance(statement, ast.Assign) else [statement.target]
    keys = {key_of(target) for target in targets} - {None}
    for other in source.calls_named("cuda", "to", *_OFFLOADS, *_CASTS):
        chain: ast.AST | None = receiver(other)
        while isinstance(chain, ast.Call):
            chain = receiver(chain)
        if chain is not None and key_of(chain) in keys:
            yield other
