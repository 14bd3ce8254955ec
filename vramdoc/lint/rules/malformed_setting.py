"""VD003: a config string that PyTorch refuses: wrong separators, unknown keys, values of the wrong kind."""

from __future__ import annotations

import difflib
import re
from collections.abc import Iterator

from vramdoc.allocator.config import ConfigError
from vramdoc.allocator.options import KEYS, Kind
from vramdoc.allocator.releases import NEWEST, nearest
from vramdoc.lint.finding import Finding
from vramdoc.lint.literals import HOLE
from vramdoc.lint.rule import Example, Rule
from vramdoc.lint.settings import (
    CONF_VARIABLES,
    SETTERS,
    Setting,
    Target,
    is_out_of_range,
    judge,
    split_entries,
)
from vramdoc.lint.violation import Level

RULE = Rule(
    id="VD003",
    name="malformed-setting",
    title="allocator setting that PyTorch refuses",
    level=Level.ERROR,
    why="""
    The string is `key:value,key:value`. A key that the release does not know, `=` for `:`, or `true` for `True` raises at the first use
    of CUDA; from torch 2.10 on a string without the right structure ends `import torch` itself with an abort
    (c10/core/AllocatorConfig.cpp). A CPU build accepts unknown keys silently, so a test without a GPU does not find this.
    """,
    instead="Write `key:value` pairs separated by commas, with the keys of the torch release in use.",
    bad=(
        Example(
            code="""
import os

os.environ["PYTORCH_CUDA_ALLOC_CONF"] = "max_split_size_mb=512"  # VD003
"""
        ),
        Example(
            code="""
import os

size = 64
os.environ.update(PYTORCH_CUDA_ALLOC_CONF=f"max_split_size:{size}")  # VD003
"""
        ),
        Example(
            file="train.sh",
            code="export PYTORCH_CUDA_ALLOC_CONF=expandable_segments:true  # VD003\n",
        ),
    ),
    good=(
        Example(
            code="""
import os

size = int(os.getenv("SPLIT", "64"))
os.environ["PYTORCH_CUDA_ALLOC_CONF"] = f"max_split_size_mb:{size},garbage_collection_threshold:0.8"
"""
        ),
        Example(
            file="train.sh",
            code="PYTORCH_CUDA_ALLOC_CONF=expandable_segments:True python train.py\n",
        ),
    ),
    words=(*CONF_VARIABLES, *SETTERS),
)


@RULE.on_setting
def check(setting: Setting, target: Target) -> Iterator[Finding]:
    """Strings that the release refuses for their form."""
    error = judge(setting, target)
    if error is None:
        yield from _half_read(setting)
    elif not is_out_of_range(error):
        yield setting.finding(_message(setting, error, target))


def _half_read(setting: Setting) -> Iterator[Finding]:
    """``max_split_size_mb:128MB``: std::stoi and std::stoull read the number in front and drop the rest."""
    for key, value in setting.entries.items():
        number = re.fullmatch(r"(\d+)(\D.*)", value)
        counted = key in KEYS and KEYS[key].kind in {Kind.MEBIBYTES, Kind.COUNT}
        if number and counted and setting.variable in CONF_VARIABLES and HOLE not in value:
            yield setting.finding(
                f"{key}:{value} is read as {number[1]}: what stands behind the number is dropped",
                Level.WARNING,
            )


def _message(setting: Setting, error: ConfigError, target: Target) -> str:
    release = nearest(target.release or NEWEST)
    consequence = (
        "aborts in `import torch`" if error.aborts else "refuses it at the first use of CUDA"
    )
    advice = _advice(setting)
    return (
        f"torch {release} {consequence} ({error.reason.strip()}){': ' + advice if advice else ''}"
    )


_ENTRY = re.compile(r"\s*([^:=\s]*)\s*([:=]?)\s*(.*)", re.DOTALL)
_SWITCHES = frozenset({"true", "false", "1", "0", "yes", "no", "on", "off"})


def _advice(setting: Setting) -> str:
    """What is wrong with the first entry that looks wrong, in words that PyTorch's own text lacks."""
    for entry in split_entries(setting.value or ""):
        match = _ENTRY.match(entry)
        assert match is not None  # the pattern matches anything
        key, separator, value = match[1], match[2], match[3].strip()
        if separator == "=":
            return f"separate key and value with ':', not '=' ({key}:{value})"
        if not separator:
            return f"{key!r} has no value; write key:value, entries separated by commas"
        if key not in KEYS:
            near = difflib.get_close_matches(key, KEYS, n=1)
            return f"unknown key {key!r}" + (f", did you mean {near[0]}?" if near else "")
        if (
            value.lower() in _SWITCHES
            and KEYS[key].kind is Kind.SWITCH
            and value not in {"True", "False"}
        ):
            return f"{key} takes True or False, spelled so"
    return ""
