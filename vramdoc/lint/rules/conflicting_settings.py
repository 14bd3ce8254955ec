"""VD005: options that contradict or disable one another, in one string or in two variables."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator

from vramdoc.allocator.options import KEYS
from vramdoc.lint.finding import Finding
from vramdoc.lint.rule import Example, Rule
from vramdoc.lint.settings import CONF_VARIABLES, SETTERS, Setting, Target, split_entries
from vramdoc.lint.violation import Level

RULE = Rule(
    id="VD005",
    name="conflicting-settings",
    title="allocator options that work against each other",
    level=Level.WARNING,
    why="""
    With `expandable_segments:True` splitting no longer asks `max_split_size_mb`, and garbage collection skips expandable segments; up to
    torch 2.4 the combination fails an internal assertion when memory runs short (pytorch#119452, pytorch#123548, mended by PR #134338).
    `backend:cudaMallocAsync` ignores the native allocator's options. Of a key given twice the last counts.
    """,
    instead="Keep the one option that is meant.",
    bad=(
        Example(
            code="""
import os

os.environ["PYTORCH_CUDA_ALLOC_CONF"] = "expandable_segments:True,max_split_size_mb:32"  # VD005
"""
        ),
        Example(
            file="Dockerfile",
            lines=(2,),
            code="""FROM pytorch/pytorch
ENV PYTORCH_CUDA_ALLOC_CONF="backend:cudaMallocAsync,garbage_collection_threshold:0.8"
""",
        ),
    ),
    good=(
        Example(
            code="""
import os

os.environ["PYTORCH_CUDA_ALLOC_CONF"] = "expandable_segments:False,max_split_size_mb:32"
"""
        ),
    ),
    words=(*CONF_VARIABLES, *SETTERS),
)
_NATIVE_ONLY = frozenset({
    "max_split_size_mb", "max_non_split_rounding_mb", "large_segment_size_mb", "roundup_power2_divisions",
    "garbage_collection_threshold", "expandable_segments",
})  # fmt: skip


@RULE.on_setting
def check(setting: Setting, target: Target) -> Iterator[Finding]:
    """Every conflict within one string."""
    if setting.variable not in CONF_VARIABLES or setting.value is None:
        return
    entries = setting.entries
    keys = Counter(entry.partition(":")[0].strip() for entry in split_entries(setting.value))
    for key, count in keys.items():
        if count > 1 and key in KEYS:
            yield setting.finding(
                f"{key} is given {count} times; the last, {entries.get(key)}, counts"
            )
    if entries.get("expandable_segments") == "True":
        yield from _with_expandable(setting, target)
    if entries.get("backend") == "cudaMallocAsync":
        idle = sorted(_NATIVE_ONLY & set(entries) - _switched_off(entries))
        if idle:
            yield setting.finding(f"backend:cudaMallocAsync ignores {', '.join(idle)}")


def _with_expandable(setting: Setting, target: Target) -> Iterator[Finding]:
    entries = setting.entries
    old = (
        "up to torch 2.4 the two fail an internal assertion when memory runs short"
        if (target.release is None or target.older_than("2.5"))
        else ""
    )
    for key, what in (
        ("max_split_size_mb", "no longer limits splitting"),
        ("garbage_collection_threshold", "skips expandable segments"),
    ):
        if key in entries:
            yield setting.finding(
                f"with expandable_segments:True, {key} {what}" + (f"; {old}" if old else "")
            )


def _switched_off(entries: dict[str, str]) -> set[str]:
    return {key for key, value in entries.items() if value == "False"}
