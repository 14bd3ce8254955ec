"""VD006: PYTORCH_NO_CUDA_MEMORY_CACHING given a value that does not mean what it looks like."""

from __future__ import annotations

from collections.abc import Iterator

from vramdoc.lint.finding import Finding
from vramdoc.lint.literals import HOLE
from vramdoc.lint.rule import Example, Rule
from vramdoc.lint.settings import NO_CACHING, Setting, Target
from vramdoc.lint.violation import Level

RULE = Rule(
    id="VD006",
    name="no-caching-by-accident",
    title="PYTORCH_NO_CUDA_MEMORY_CACHING with a value other than 1",
    level=Level.WARNING,
    why="""
    Up to torch 2.6 the mere presence of the variable switches the caching allocator off, also with the value `0` or an empty one
    (pytorch#145661): every tensor is then a cudaMalloc and a cudaFree. From 2.7 on only `1` does; other words are ignored with a warning.
    """,
    instead="Leave the variable out to keep caching; write `1` to switch it off.",
    bad=(
        Example(
            code="""
import os

os.environ["PYTORCH_NO_CUDA_MEMORY_CACHING"] = "0"  # VD006
"""
        ),
        Example(file="run.sh", code="export PYTORCH_NO_CUDA_MEMORY_CACHING=false  # VD006\n"),
    ),
    good=(Example(file="debug.sh", code="PYTORCH_NO_CUDA_MEMORY_CACHING=1 python repro.py\n"),),
    words=NO_CACHING,
)


@RULE.on_setting
def check(setting: Setting, target: Target) -> Iterator[Finding]:
    """Values whose effect is the opposite of their look, on some release or on the one given."""
    value = setting.value
    if setting.variable not in NO_CACHING or value is None or value == "1" or HOLE in value:
        return
    boolean = target.release is not None and not target.older_than("2.7")
    if boolean and value == "0":
        return
    if boolean:
        message = f"{value!r} is neither 0 nor 1 and is ignored: caching stays on"
    else:
        message = f"up to torch 2.6 any value, {value!r} too, switches the caching allocator off; leave the variable out"
    yield setting.finding(f"{setting.variable}: {message}")
