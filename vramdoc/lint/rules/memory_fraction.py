"""VD506: a memory limit far below the card."""

from __future__ import annotations

import ast
from collections.abc import Iterator

from vramdoc.lint.finding import Finding, at
from vramdoc.lint.literals import number
from vramdoc.lint.rule import Example, Rule
from vramdoc.lint.settings import CONF_VARIABLES, Setting, Target
from vramdoc.lint.source import Source, argument
from vramdoc.lint.violation import Level

RULE = Rule(
    id="VD506",
    name="low-memory-fraction",
    title="memory fraction that leaves much of the card unused",
    level=Level.INFO,
    why="""
    Beyond the fraction every allocation fails with "CUDA out of memory" while the card is partly free; up to torch 2.4 the message does not even
    print the limit (pytorch#111363). A context, libraries and handles take 0.5 to 1.5 GiB: on the smallest usual card, 8 GiB, that is less than
    a fifth, so a limit below 0.8 withholds more than they need on any card.
    """,
    instead="Keep it if the GPU is shared on purpose; otherwise 0.9 leaves the driver enough.",
    bad=(
        Example(
            code="""
import torch

torch.cuda.set_per_process_memory_fraction(0.5, 0)  # VD506
"""
        ),
        Example(
            file="run.sh",
            code="export PYTORCH_CUDA_ALLOC_CONF=per_process_memory_fraction:0.4  # VD506\n",
        ),
    ),
    good=(
        Example(
            code="""
import torch

torch.cuda.set_per_process_memory_fraction(0.9)
"""
        ),
    ),
    words=("set_per_process_memory_fraction", "per_process_memory_fraction"),
)
_LOW = 0.8
"""1 - 1.5 GiB / 8 GiB, rounded down."""


@RULE.on_call("set_per_process_memory_fraction")
def check_call(source: Source, call: ast.Call) -> Iterator[Finding]:
    """The limit set from Python."""
    fraction = number(source, argument(call, "fraction", 0))
    of_torch = (source.qualname(call.func) or "").startswith("torch.")
    if of_torch and fraction is not None and fraction < _LOW:
        yield at(call, _message(fraction))


@RULE.on_setting
def check_setting(setting: Setting, target: Target) -> Iterator[Finding]:  # noqa: ARG001 - the same everywhere
    """The limit set in the config string (torch 2.10 and newer)."""
    if setting.variable in CONF_VARIABLES:
        try:
            fraction = float(setting.entries.get("per_process_memory_fraction", "1"))
        except ValueError:
            return
        if 0 <= fraction < _LOW:
            yield setting.finding(_message(fraction))


def _message(fraction: float) -> str:
    return f"this process may use {fraction:.0%} of the card: beyond it allocations fail as out of memory while the rest is free"
