"""VD008: an allocator setting that the given torch release or platform ignores, or that another variable overrides."""

from __future__ import annotations

from collections.abc import Iterator

from vramdoc.lint.finding import Finding
from vramdoc.lint.python_settings import settings_of
from vramdoc.lint.rule import Example, Rule
from vramdoc.lint.settings import CONF_VARIABLES, NO_CACHING, Reach, Setting, Target
from vramdoc.lint.source import Source
from vramdoc.lint.violation import Level

RULE = Rule(
    id="VD008",
    name="ineffective-setting",
    title="allocator setting that has no effect there",
    level=Level.WARNING,
    why="""
    Up to torch 2.9 only PYTORCH_CUDA_ALLOC_CONF is read (2.9 even warns in favour of PYTORCH_ALLOC_CONF and then ignores it). From 2.10 on the
    first one set of PYTORCH_CUDA_ALLOC_CONF, PYTORCH_HIP_ALLOC_CONF and PYTORCH_ALLOC_CONF is read whole; they are never merged. Expandable
    segments need Linux.
    """,
    instead="Set PYTORCH_CUDA_ALLOC_CONF and no other; give `--torch` and `--platform` to have a file judged for where it runs.",
    bad=(
        Example(
            code="""
import os

os.environ["PYTORCH_CUDA_ALLOC_CONF"] = "max_split_size_mb:128"
os.environ["PYTORCH_ALLOC_CONF"] = "expandable_segments:True"  # VD008
"""
        ),
    ),
    good=(
        Example(
            code="""
import os

os.environ["PYTORCH_CUDA_ALLOC_CONF"] = "expandable_segments:True"
"""
        ),
    ),
    words=CONF_VARIABLES,
)
_NO_EXPANDABLE = frozenset({"windows", "macos"})


@RULE.on_setting
def check(setting: Setting, target: Target) -> Iterator[Finding]:
    """What release and platform rule out. Without them nothing is said."""
    generic = setting.variable == "PYTORCH_ALLOC_CONF"
    if generic and target.older_than("2.10"):
        yield setting.finding(
            f"torch {target.release} does not read PYTORCH_ALLOC_CONF; set PYTORCH_CUDA_ALLOC_CONF"
        )
    expandable = setting.entries.get("expandable_segments") == "True"
    if expandable and (target.platform or "").lower() in _NO_EXPANDABLE:
        yield setting.finding(
            f"expandable_segments is ignored on {target.platform} (torch warns once and goes on without)"
        )


@RULE.on_source
def check_together(source: Source) -> Iterator[Finding]:
    """A second variable set for the same process."""
    set_here = [
        s for s in settings_of(source) if s.reach is Reach.PROCESS and s.variable in CONF_VARIABLES
    ]
    first = min(set_here, key=lambda s: CONF_VARIABLES.index(s.variable), default=None)
    for setting in set_here:
        if (
            first is not None
            and setting.variable != first.variable
            and setting.value != first.value
        ):
            yield setting.finding(
                f"{first.variable} is set as well (line {first.line}) and is the only one that is read"
            )
    uncached = next(
        (
            s
            for s in settings_of(source)
            if s.reach is Reach.PROCESS and s.variable in NO_CACHING and s.value == "1"
        ),
        None,
    )
    for setting in set_here if uncached is not None else ():
        yield setting.finding(
            f"{NO_CACHING[0]} (line {uncached.line if uncached else 0}) switches off the allocator that this configures"
        )
