"""VD002: an allocator variable set after torch was imported, but before CUDA is used."""

from __future__ import annotations

from collections.abc import Iterator

from vramdoc.lint.finding import Finding
from vramdoc.lint.rule import Example, Rule
from vramdoc.lint.settings import VARIABLES
from vramdoc.lint.source import Source
from vramdoc.lint.timeline import Stage, moments
from vramdoc.lint.violation import Level

RULE = Rule(
    id="VD002",
    name="setting-after-import",
    title="allocator variable set after torch was imported",
    level=Level.INFO,
    why="""
    It works as long as nothing has touched CUDA yet: the variable is read when the allocator starts (torch 2.14.1, tried). But an
    import added between the two, or one that uses CUDA at import time, silently switches it off.
    """,
    instead="Move it above the first import of torch, or into the launcher.",
    bad=(
        Example(
            code="""
import os
import torch

os.environ["PYTORCH_CUDA_ALLOC_CONF"] = "max_split_size_mb:256"  # VD002
net = torch.nn.Linear(8, 8).cuda()
"""
        ),
    ),
    good=(
        Example(
            code="""
import os

os.environ["PYTORCH_CUDA_ALLOC_CONF"] = "max_split_size_mb:256"

import torch
"""
        ),
    ),
    words=VARIABLES,
)


@RULE.on_source
def check(source: Source) -> Iterator[Finding]:
    """Settings between the import and the first use."""
    for setting, moment in moments(source).items():
        backend = setting.entries.get("backend", "native")
        if moment.stage is Stage.IMPORTED and backend == "native":
            yield setting.finding(
                f"{setting.variable} set after torch is imported: it still takes effect while nothing has used CUDA, "
                "but belongs above the import"
            )
