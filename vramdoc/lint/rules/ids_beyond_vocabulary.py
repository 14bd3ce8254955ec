"""VD504: token ids for which the embedding has no row."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator

from vramdoc.lint.bindings import Role, key_of
from vramdoc.lint.finding import Finding, at
from vramdoc.lint.literals import number, texts
from vramdoc.lint.rule import Example, Rule
from vramdoc.lint.shapes import shape
from vramdoc.lint.source import Source, argument, last_name, receiver
from vramdoc.lint.violation import Level
from vramdoc.lint.vocabularies import ENDS, ROWS, SPARE_ROWS, SPECIAL_TOKENS

RULE = Rule(
    id="VD504",
    name="ids-beyond-vocabulary",
    title="token ids beyond the embedding table",
    level=Level.ERROR,
    why="""
    A token added to the tokenizer gets the next free id, and the model's embedding has no row for it until `resize_token_embeddings`. On the CPU
    that is an IndexError; on a GPU a device-side assert, which surfaces later as some other call's error, often CUBLAS_STATUS_NOT_INITIALIZED
    or ALLOC_FAILED at cublasCreate, and looks like lack of memory (OptimalScale/LMFlow#114).
    """,
    instead="Call `model.resize_token_embeddings(len(tokenizer))` after the last token was added, or reuse `tokenizer.eos_token` for padding.",
    bad=(
        Example(
            code="""
from transformers import AutoModelForCausalLM, AutoTokenizer

tok = AutoTokenizer.from_pretrained("gpt2")
model = AutoModelForCausalLM.from_pretrained("gpt2")
tok.add_special_tokens({"pad_token": "[PAD]"})  # VD504
"""
        ),
        Example(
            code="""
import torch

table = torch.nn.Embedding(1000, 64).cuda()
ids = torch.randint(0, 1200, (8,), device="cuda")
table(ids)  # VD504
"""
        ),
        Example(
            code="""
import torch
from transformers import AutoModel

model = AutoModel.from_pretrained("gpt2").cuda()
ids = torch.randint(0, 60_000, (4, 128)).cuda()
model(input_ids=ids)  # VD504
"""
        ),
        Example(
            code="""
from transformers import AutoModelForCausalLM, AutoTokenizer

tok = AutoTokenizer.from_pretrained("gpt2", pad_token="<PAD>")  # VD504
model = AutoModelForCausalLM.from_pretrained("gpt2")
"""
        ),
    ),
    good=(
        Example(
            code="""
import torch
from transformers import AutoModelForCausalLM, AutoTokenizer

tok = AutoTokenizer.from_pretrained("gpt2")
model = AutoModelForCausalLM.from_pretrained("gpt2")
tok.add_special_tokens({"pad_token": tok.eos_token})
if tok.add_tokens(["<image>"]):
    model.resize_token_embeddings(len(tok))
table = torch.nn.Embedding(1000, 64)
table(torch.randint(0, 1000, (8,)))
"""
        ),
        Example(
            code="""
from transformers import AutoModelForCausalLM, AutoTokenizer

tok = AutoTokenizer.from_pretrained("Qwen/Qwen2.5-7B")
tok.add_tokens(["<tool>"])
model = AutoModelForCausalLM.from_pretrained("Qwen/Qwen2.5-7B", dtype="auto")
"""
        ),
    ),
    words=("add_special_tokens", "add_tokens", "Embedding", "embedding", "from_pretrained"),
    limits="""
    Only where the model is loaded in the same function or at the top of the file; of published models, those whose table is known here.
    A table that was made longer than its vocabulary has room for a few tokens: families known for that are left alone.
    """,
)
_MODEL = re.compile(r"^transformers\.\w*Model\w*\.|LMHead\w*\.|For[A-Z]\w+\.from_pretrained$")
_EXISTING = frozenset(
    {"eos_token", "bos_token", "unk_token", "pad_token", "sep_token", "cls_token", "mask_token"}
)


@RULE.on_call("add_special_tokens", "add_tokens")
def check_added(source: Source, call: ast.Call) -> Iterator[Finding]:
    """New tokens without a resize after them."""
    tokenizer = receiver(call)
    given = call.args[:1] or [keyword.value for keyword in call.keywords[:1]]
    if tokenizer is not None and given and _is_tokenizer(source, tokenizer):
        yield from _added(source, call, tokenizer, given[0])


@RULE.on_call("from_pretrained")
def check_loaded(source: Source, call: ast.Call) -> Iterator[Finding]:
    """Tokenizers that get new tokens as they are loaded, models that get ids beyond their table later."""
    yield from _named(source, call)
    yield from _called_with(source, call)


def _named(source: Source, call: ast.Call) -> Iterator[Finding]:
    """``AutoTokenizer.from_pretrained(name, pad_token="<PAD>")`` adds the token if it is new (transformers 5.24, tried)."""
    if "okeniz" not in (source.qualname(call.func) or ""):
        return
    named = [k.value for k in call.keywords if (k.arg or "") in _EXISTING]
    # "!" is a word of any vocabulary; a token made for the purpose is put into brackets.
    if any(_BRACKETED.search(text) for value in named for text in texts(source, value)):
        yield from _added(source, call, call, ast.Tuple(elts=named, ctx=ast.Load()))


_BRACKETED = re.compile(r"^(<.+>|\[.+\])$")


def _added(
    source: Source, call: ast.Call, tokenizer: ast.AST, tokens: ast.expr
) -> Iterator[Finding]:
    models = [
        loaded
        for loaded in source.calls_named("from_pretrained")
        if _MODEL.search(source.qualname(loaded.func) or "")
        and source.function(loaded) in {None, source.function(call)}
    ]
    written = _written(source, tokens)
    if (
        not models
        or _exist_already(source, tokens)
        or _in_vocabulary(source, tokenizer, written)
        or all(_has_room(source, loaded, written) for loaded in models)
    ):
        return
    name = key_of(tokenizer) or "the tokenizer"
    resizes = list(source.calls_named("resize_token_embeddings"))
    if not resizes:
        yield at(
            call,
            f"{name} gets ids for which the model's embedding has no row; call model.resize_token_embeddings(len({name}))",
        )
    elif all(_before(source, resize, call) for resize in resizes):
        yield at(
            call,
            f"added after resize_token_embeddings (line {resizes[-1].lineno}): the new ids have no row; resize after adding",
        )


def _has_room(source: Source, loaded: ast.Call, written: set[str]) -> bool:
    """Whether the model's table has rows to spare for as many tokens."""
    first = argument(loaded, "pretrained_model_name_or_path", 0)
    names = texts(source, first) if first is not None else ()
    spare = [rows for name in names for family, rows in SPARE_ROWS if family.search(name)]
    return bool(written) and len(spare) == len(names) > 0 and len(written) <= min(spare)


def _written(source: Source, tokens: ast.AST) -> set[str]:
    """The tokens that are written out."""
    return {
        node.value
        for origin in source.flow.origins(tokens)
        for node in ast.walk(_values(origin.node))
        if isinstance(node, ast.Constant) and isinstance(node.value, str)
    }


def _in_vocabulary(source: Source, tokenizer: ast.AST, written: set[str]) -> bool:
    """Whether every token written out is one that the model's family has already."""
    names = {
        text
        for origin in source.flow.origins(tokenizer)
        if isinstance(origin.node, ast.Call) and origin.node.args
        for text in texts(source, origin.node.args[0])
    }
    return bool(written) and (
        written <= ENDS
        or any(
            written <= known and any(map(family.search, names)) for family, known in SPECIAL_TOKENS
        )
    )


def _values(node: ast.AST) -> ast.AST:
    """The values of a dictionary, without its keys."""
    return ast.Tuple(elts=node.values, ctx=ast.Load()) if isinstance(node, ast.Dict) else node


def _before(source: Source, resize: ast.Call, added: ast.Call) -> bool:
    return (
        source.function(resize) is source.function(added)
        and source.position[resize] < source.position[added]
    )


def _is_tokenizer(source: Source, node: ast.AST) -> bool:
    origins = source.flow.origins(node)
    loaded = any(
        isinstance(o.node, ast.Call) and "okeniz" in (source.qualname(o.node.func) or "")
        for o in origins
    )
    return loaded or "tok" in last_name(node).lower()


def _exist_already(source: Source, tokens: ast.AST) -> bool:
    """Whether everything that is added is an existing token of the tokenizer (``tok.eos_token``)."""
    for origin in source.flow.origins(tokens):
        node = origin.node
        if isinstance(node, ast.Dict):
            values: list[ast.expr] = list(node.values)
        elif isinstance(node, (ast.List, ast.Tuple)):
            values = node.elts
        else:
            values = [node] if isinstance(node, ast.expr) else []
        if not values or not all(
            isinstance(value, ast.Attribute) and value.attr in _EXISTING for value in values
        ):
            return False
    return True


@RULE.on_source
def check_tables(source: Source) -> Iterator[Finding]:
    """An ``nn.Embedding`` of known size called with ids known to go beyond it."""
    keys = {
        key_of(target)
        for made in source.calls_named("Embedding")
        for node in source.nodes.get(ast.Assign, ())
        if isinstance(node, ast.Assign) and source.within(made, node)
        for target in node.targets
    } - {None}
    for node in source.nodes.get(ast.Call, ()) if keys else ():
        assert isinstance(node, ast.Call)
        if node.args and key_of(node.func) in keys:
            yield from _looked_up(source, node)


@RULE.on_call("embedding")
def check_functional(source: Source, call: ast.Call) -> Iterator[Finding]:
    """``F.embedding(ids, weight)`` with a weight of known size."""
    weight = argument(call, "weight", 1)
    if source.qualname(call.func) != "torch.nn.functional.embedding" or weight is None:
        return
    rows = shape(source, weight)
    if rows and call.args:
        yield from _beyond(source, call, rows[0])


def _called_with(source: Source, loaded: ast.Call) -> Iterator[Finding]:
    """A published model called with ids known to go beyond its table."""
    first = loaded.args[0] if loaded.args else None
    name = first.value if isinstance(first, ast.Constant) and isinstance(first.value, str) else ""
    rows = ROWS.get(name.rsplit("/", 1)[-1])
    if rows is None or not _MODEL.search(source.qualname(loaded.func) or ""):
        return
    for call in source.nodes.get(ast.Call, ()):
        assert isinstance(call, ast.Call)
        ids = argument(call, "input_ids", 0)
        if ids is None or loaded not in {
            _unwrapped(o.node) for o in source.flow.origins(call.func)
        }:
            continue
        largest = _largest(source, ids)
        if largest is not None and largest >= rows:
            drawn = next((getattr(o.node, "lineno", 0) for o in source.flow.origins(ids)), 0)
            yield at(
                call,
                f"ids go up to {largest} (line {drawn}), {name} has {rows} rows (0 to {rows - 1}): a device-side assert on a GPU",
            )


def _unwrapped(made: ast.AST) -> ast.AST:
    """The call behind ``.cuda()``, ``.to(...)`` and their like."""
    while (
        isinstance(made, ast.Call)
        and isinstance(made.func, ast.Attribute)
        and made.func.attr in {"cuda", "to", "half", "eval"}
    ):
        made = made.func.value
    return made


def _looked_up(source: Source, call: ast.Call) -> Iterator[Finding]:
    rows = _rows(source, call.func)
    if rows is not None:
        yield from _beyond(source, call, rows)


def _beyond(source: Source, call: ast.Call, rows: int) -> Iterator[Finding]:
    largest = _largest(source, call.args[0])
    if largest is not None and largest >= rows:
        yield at(
            call,
            f"ids go up to {largest}, the embedding has {rows} rows (0 to {rows - 1}): a device-side assert on a GPU",
        )


def _rows(source: Source, table: ast.AST) -> int | None:
    if key_of(table) is None or (isinstance(table, ast.Name) and table.id in source.imports):
        return None
    for origin in source.flow.origins(table):
        made = _unwrapped(origin.node)
        if (
            origin.role is not Role.VALUE
            or not isinstance(made, ast.Call)
            or source.qualname(made.func) != "torch.nn.Embedding"
        ):
            return None
        rows = number(source, argument(made, "num_embeddings", 0))
        return int(rows) if rows is not None else None
    return None


def _largest(source: Source, ids: ast.AST) -> int | None:
    """The largest id that ``torch.randint`` or a literal tensor can hold."""
    for origin in source.flow.origins(ids):
        made: ast.AST = origin.node
        while (
            isinstance(made, ast.Call)
            and last_name(made.func) in {"cuda", "to", "long"}
            and isinstance(made.func, ast.Attribute)
        ):
            made = made.func.value
        if not isinstance(made, ast.Call):
            return None
        name = source.qualname(made.func)
        if name == "torch.randint":
            high = argument(made, "high") or (
                made.args[1] if len(made.args) > 2 else made.args[0] if made.args else None
            )
            end = number(source, high)
            return None if end is None else int(end) - 1
        if name == "torch.arange":
            count = shape(source, made)
            end = number(source, made.args[1] if len(made.args) > 1 else made.args[0])
            return int(end) - 1 if end is not None and count and count[0] else None
        if name == "torch.full":
            fill = number(source, argument(made, "fill_value", 1))
            return None if fill is None else int(fill)
        if name in {"torch.tensor", "torch.LongTensor"} and made.args:
            numbers = [
                n.value
                for n in ast.walk(made.args[0])
                if isinstance(n, ast.Constant) and isinstance(n.value, int)
            ]
            return max(numbers, default=None)
    return None
