"""VD001: an allocator variable set when the allocator has already read it."""

from __future__ import annotations

import ast
from collections.abc import Iterator

from vramdoc.lint.finding import Finding
from vramdoc.lint.rule import Example, Rule
from vramdoc.lint.settings import VARIABLES, Setting
from vramdoc.lint.source import Source
from vramdoc.lint.timeline import Moment, Stage, moments
from vramdoc.lint.violation import Level

RULE = Rule(
    id="VD001",
    name="setting-after-cuda-start",
    title="allocator variable set after CUDA has started",
    level=Level.ERROR,
    why="""
    PyTorch reads PYTORCH_CUDA_ALLOC_CONF (and PYTORCH_NO_CUDA_MEMORY_CACHING) once, when its CUDA allocator starts: at the first
    CUDA tensor, `torch.cuda.set_device`, `get_device_properties` and the like. Set later, the variable is ignored without a word
    (torch 2.14.1, tried call by call). `backend:` is read even earlier, while `import torch` runs.
    """,
    instead="""
    Set the variable in the launcher, or above `import torch`. Child processes started afterwards do see it.
    """,
    bad=(
        Example(
            code="""
import os
import torch

weights = torch.randn(4096, 4096, device="cuda")
os.environ["PYTORCH_CUDA_ALLOC_CONF"] = "expandable_segments:True"  # VD001
"""
        ),
        Example(
            code="""
import torch
import os

os.environ["PYTORCH_CUDA_ALLOC_CONF"] = "backend:cudaMallocAsync"  # VD001
"""
        ),
    ),
    good=(
        Example(
            code="""
import os

os.environ["PYTORCH_CUDA_ALLOC_CONF"] = "expandable_segments:True"

import torch

weights = torch.randn(4096, 4096, device="cuda")
"""
        ),
        Example(
            code="""
import os, subprocess, torch

print(torch.cuda.get_device_name(0))
os.environ["PYTORCH_CUDA_ALLOC_CONF"] = "expandable_segments:True"
subprocess.run(["python", "train.py"])
"""
        ),
    ),
    words=VARIABLES,
    limits="What other modules did before this one is not known.",
)
_LAUNCHERS = (
    "Popen",
    "run",
    "call",
    "check_call",
    "check_output",
    "system",
    "execv",
    "execve",
    "execvp",
    "execvpe",
    "execl",
    "spawn",
    "Process",
    "start_processes",
    "elastic_launch",
)


@RULE.on_source
def check(source: Source) -> Iterator[Finding]:
    """Settings of this process's environment at a stage that no longer listens."""
    for setting, moment in moments(source).items():
        if moment.stage is Stage.STARTED and not _for_children(source, setting):
            yield setting.finding(_message(setting, moment))
        elif (
            moment.stage is Stage.IMPORTED
            and "backend" in setting.entries
            and setting.entries["backend"] != "native"
        ):
            yield setting.finding(
                "backend: is read while `import torch` runs, so this leaves the allocator native; set it above the import"
            )


def _message(setting: Setting, moment: Moment) -> str:
    cause = moment.cause
    where = f" (line {cause.lineno})" if isinstance(cause, (ast.expr, ast.stmt)) else ""
    return (
        f"{setting.variable} is read once, when the CUDA allocator starts; CUDA is already in use here{where}, "
        "so this has no effect"
    )


def _for_children(source: Source, setting: Setting) -> bool:
    """Whether processes are started below: they inherit the variable, and it may be meant for them."""
    return any(
        call.lineno > setting.line
        and (source.qualname(call.func) or "").partition(".")[0]
        in {"os", "subprocess", "multiprocessing", "torch"}
        for call in source.calls_named(*_LAUNCHERS)
    )
