"""No source makes lint fail: arbitrary text, arbitrary programs, and programs out of the words that the rules look for."""

from __future__ import annotations

import ast
import contextlib

from hypothesis import given
from hypothesis import strategies as st

from vramdoc.lint.check import check_text
from vramdoc.lint.files import CannotRead, Kind
from vramdoc.lint.rules import RULES

NAMES = st.sampled_from(["torch", "np", "os", "t", "k", "v", "keys", "cache", "past", "model", "net", "loader", "loss", "total", "out", "buf", "pos", "e", "tok", "llm", "F", "environ", "self"])  # fmt: skip
ATTRIBUTES = st.sampled_from(["resize_", "cuda", "to", "numpy", "cat", "from_numpy", "backward", "append", "eval", "environ", "update", "setdefault", "load", "zeros", "empty", "full", "empty_cache", "from_pretrained", "add_special_tokens", "untyped_storage", "_new_shared", "share_memory_", "expand", "repeat", "detach", "item", "shape", "k_cache"])  # fmt: skip
LITERALS = st.sampled_from(
    [
        "0",
        "1",
        "2.5",
        "None",
        "True",
        "'cuda'",
        "'PYTORCH_CUDA_ALLOC_CONF'",
        "'expandable_segments:True,max_split_size_mb=3'",
        "...",
        "-1",
    ]
)


def _grown(inner: st.SearchStrategy[str]) -> st.SearchStrategy[str]:
    arguments = st.lists(inner, max_size=3).map(", ".join)
    return st.one_of(
        st.builds("{}.{}".format, inner, ATTRIBUTES),
        st.builds("{}({})".format, inner, arguments),
        st.builds("{}.{}({})".format, inner, ATTRIBUTES, arguments),
        st.builds("{}.{}(out={})".format, inner, ATTRIBUTES, inner),
        st.builds("{}[{}]".format, inner, inner),
        st.builds("{}[:, {}:{} + 1]".format, inner, inner, inner),
        st.builds("[{} for {} in {}]".format, inner, NAMES, inner),
        st.builds("({} + {})".format, inner, inner),
        st.builds("({} if {} else {})".format, inner, inner, inner),
        st.builds("{{'PYTORCH_CUDA_ALLOC_CONF': {}}}".format, inner),
        st.builds("(lambda {}: {})".format, NAMES, inner),
        st.builds("f'max_split_size_mb:{{{}}}'".format, NAMES),
    )


EXPRESSIONS = st.recursive(st.one_of(NAMES, LITERALS), _grown, max_leaves=8)
TARGETS = st.one_of(
    NAMES,
    st.builds("{}.{}".format, NAMES, ATTRIBUTES),
    st.builds("{}[{}]".format, NAMES, EXPRESSIONS),
    st.builds("{}, {}".format, NAMES, NAMES),
)
SIMPLE = st.one_of(
    EXPRESSIONS,
    st.builds("{} = {}".format, TARGETS, EXPRESSIONS),
    st.builds("{} += {}".format, NAMES, EXPRESSIONS),
    st.builds("return {}".format, EXPRESSIONS),
    st.builds("import torch as {}".format, NAMES),
    st.builds("from torch import cat as {}".format, NAMES),
    st.just("import os, torch"),
    st.builds("del {}".format, NAMES),
)
HEADERS = st.one_of(
    st.builds("for {} in {}:".format, TARGETS, EXPRESSIONS),
    st.builds("while {}:".format, EXPRESSIONS),
    st.builds("if {}:".format, EXPRESSIONS),
    st.builds("with {} as {}:".format, EXPRESSIONS, NAMES),
    st.builds("def {}({}, n=1):".format, NAMES, NAMES),
    st.builds("class {}(torch.nn.Module):".format, NAMES),
)


def _indented(block: list[str]) -> list[str]:
    return [f"    {line}" for line in block] or ["    pass"]


def _blocks(inner: st.SearchStrategy[list[str]]) -> st.SearchStrategy[list[str]]:
    return st.one_of(
        st.builds(lambda header, block: [header, *_indented(block)], HEADERS, inner),
        st.builds(
            lambda tried, handled: [
                "try:",
                *_indented(tried),
                "except RuntimeError as e:",
                *_indented(handled),
            ],
            inner,
            inner,
        ),
        st.builds(lambda one, other: [*one, *other], inner, inner),
    )


PROGRAMS = st.recursive(SIMPLE.map(lambda line: [line]), _blocks, max_leaves=10).map("\n".join)


@given(PROGRAMS)
def test_no_program_of_the_words_that_rules_look_for_breaks_one(program: str) -> None:
    with contextlib.suppress(SyntaxError):
        ast.parse(program)
        places = [
            (v.line, v.column) for v in check_text(f"import torch, transformers\n{program}\n")
        ]
        assert all(line >= 1 and column >= 1 for line, column in places)


@given(st.text(max_size=400), st.sampled_from(list(Kind)))
def test_no_text_breaks_a_reader(text: str, kind: Kind) -> None:
    with contextlib.suppress(SyntaxError, CannotRead, ValueError):
        check_text(f"PYTORCH_CUDA_ALLOC_CONF {text}", kind)


@given(st.text(alphabet="=:,[]'\"\\$ {}#;&\nENV-export PYTORCH_CUDA_ALLOC_CONF", max_size=300))
def test_no_shell_text_breaks_the_shell_readers(text: str) -> None:
    for kind in (Kind.SHELL, Kind.DOCKERFILE, Kind.DOTENV):
        check_text(f"PYTORCH_CUDA_ALLOC_CONF={text}\nexport PYTORCH_ALLOC_CONF={text}", kind)


@given(st.text(alphabet="=:,[]>0123456789.TrueFalsexpandblgc_mi \ufffc", max_size=60))
def test_no_config_string_breaks_a_rule(value: str) -> None:
    check_text(f"import os\nos.environ['PYTORCH_CUDA_ALLOC_CONF'] = {value!r}\n", rules=RULES)
