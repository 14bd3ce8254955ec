"""VD004: a config value outside the range that PyTorch accepts."""

from __future__ import annotations

from collections.abc import Iterator

from vramdoc.allocator.options import KEYS, Kind
from vramdoc.allocator.releases import NEWEST, nearest
from vramdoc.lint.finding import Finding
from vramdoc.lint.rule import Example, Rule
from vramdoc.lint.settings import CONF_VARIABLES, SETTERS, Setting, Target, is_out_of_range, judge
from vramdoc.lint.violation import Level

RULE = Rule(
    id="VD004",
    name="setting-out-of-range",
    title="allocator setting outside the accepted range",
    level=Level.ERROR,
    why="""
    The value has the right form and PyTorch refuses it all the same, at the first use of CUDA: `max_split_size_mb` below 20 (up to torch 2.9:
    20 itself), `garbage_collection_threshold` not strictly between 0 and 1, divisions that are no power of two. Catching that error and
    going on crashes (the allocator is left half initialised).
    """,
    instead="Keep to the range that `vramdoc explain 'key:value'` shows for the torch release in use.",
    bad=(
        Example(
            code="""
import os

os.environ.setdefault("PYTORCH_CUDA_ALLOC_CONF", "max_split_size_mb:5")  # VD004
"""
        ),
        Example(
            file="deployment.yaml",
            code="""
env:
  - name: PYTORCH_CUDA_ALLOC_CONF
    value: "garbage_collection_threshold:80"  # VD004
""",
        ),
    ),
    good=(
        Example(
            code="""
import os

os.environ.setdefault("PYTORCH_CUDA_ALLOC_CONF", "max_split_size_mb:64")
"""
        ),
    ),
    words=(*CONF_VARIABLES, *SETTERS),
)


@RULE.on_setting
def check(setting: Setting, target: Target) -> Iterator[Finding]:
    """Strings that the release refuses for a value."""
    yield from _negative(setting)
    error = judge(setting, target)
    if error is None or not is_out_of_range(error):
        return
    release = nearest(target.release or NEWEST)
    valid = [f"{key} takes {KEYS[key].valid}" for key in setting.entries if key in KEYS]
    yield setting.finding(
        f"torch {release} refuses it at the first use of CUDA ({error.reason.strip()})"
        + (f"; {valid[0]}" if len(valid) == 1 else "")
    )


def _negative(setting: Setting) -> Iterator[Finding]:
    """``max_split_size_mb:-1``: refused up to torch 2.9, wrapped around to "unlimited" by std::stoull from 2.10."""
    for key, value in setting.entries.items():
        counted = key in KEYS and KEYS[key].kind in {Kind.MEBIBYTES, Kind.COUNT}
        if counted and setting.variable in CONF_VARIABLES and value.startswith("-"):
            yield setting.finding(
                f"{key}:{value} is refused up to torch 2.9, and from 2.10 read as a huge number; leave the key out for no limit"
            )
