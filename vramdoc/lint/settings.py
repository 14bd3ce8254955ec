"""Setting: one place, in any kind of file, that gives an allocator variable a value; and how a config string is judged.

The grammar of the string, release by release, is ``vramdoc.allocator``'s. Here only what source adds: values of which a part
is not known (``HOLE``), and a torch release that may not be known either (then the newest is meant).
"""

from __future__ import annotations

import ast
import re
from dataclasses import dataclass
from enum import Enum

from vramdoc.allocator.config import AllocatorConfig, ConfigError
from vramdoc.allocator.options import KEYS, Kind
from vramdoc.allocator.releases import NEWEST, minor, nearest
from vramdoc.lint.finding import Finding
from vramdoc.lint.literals import HOLE
from vramdoc.lint.violation import Level

CONF_VARIABLES = ("PYTORCH_CUDA_ALLOC_CONF", "PYTORCH_HIP_ALLOC_CONF", "PYTORCH_ALLOC_CONF")
"""In PyTorch's order of precedence (c10/core/AllocatorConfig.cpp; compared with the binaries of 2.13 and 2.14)."""
NO_CACHING = ("PYTORCH_NO_CUDA_MEMORY_CACHING", "PYTORCH_NO_HIP_MEMORY_CACHING")
VARIABLES = (*CONF_VARIABLES, *NO_CACHING)
SETTERS = (
    "_set_allocator_settings",
    "_accelerator_setAllocatorSettings",
    "_cuda_cudaCachingAllocator_set_allocator_settings",
)
"""Functions of torch.cuda.memory and torch._C that change the settings at run time."""
_PLAUSIBLE = {
    Kind.CHOICE: "native",
    Kind.MEBIBYTES: "128",
    Kind.COUNT: "8",
    Kind.FRACTION: "0.9",
    Kind.SWITCH: "True",
    Kind.DIVISIONS: "8",
    Kind.RESERVE: "0.5",
    Kind.RESERVE_BY_CLASS: "[default:0.5]",
}
"""A valid value of each kind, to stand in for one that is not known."""


class Reach(Enum):
    """Whose environment is set."""

    PROCESS = "this process"
    CHILD = "a process to be started"
    RUN_TIME = "the running allocator"
    FILE = "whatever the file starts"
    UNEXPORTED = "nothing: a shell variable that is not exported"
    LAYER = "nothing: an export that ends with its RUN line"


@dataclass(frozen=True, slots=True, kw_only=True)
class Setting:
    """``variable = value`` at a place. ``value`` is None where nothing of it is known, else text with holes."""

    variable: str
    value: str | None
    line: int
    column: int
    end_line: int
    reach: Reach
    node: ast.expr | ast.stmt | None = None
    """In Python: the node that sets it."""

    def finding(self, message: str, level: Level | None = None) -> Finding:
        """A finding at this place."""
        return Finding(
            line=self.line,
            column=self.column,
            end_line=self.end_line,
            message=message,
            level=level,
        )

    @property
    def entries(self) -> dict[str, str]:
        """Keys and values of a config string, roughly split: for looking at, not for judging."""
        pairs = (entry.partition(":") for entry in split_entries(self.value or ""))
        return {key.strip(): value.strip() for key, colon, value in pairs if colon}


@dataclass(frozen=True, slots=True, kw_only=True)
class Target:
    """Where the code is to run. None where that is not known."""

    release: str | None = None
    platform: str | None = None

    def older_than(self, release: str) -> bool:
        """Whether the release is known and older than ``release``."""
        return self.release is not None and minor(self.release) < minor(release)


ANYWHERE = Target()


def split_entries(text: str) -> list[str]:
    """A config string at its commas, those within brackets left alone."""
    return [entry for entry in re.split(r",(?![^\[]*\])", text) if entry.strip()]


def judge(setting: Setting, target: Target) -> ConfigError | None:
    """PyTorch's refusal of the string, if it refuses whatever its unknown parts may be."""
    if setting.value is None or setting.variable not in CONF_VARIABLES:
        return None
    text = setting.value
    if HOLE in text:
        text = ",".join(filter(None, map(_filled, split_entries(text))))
    try:
        AllocatorConfig.parse(text, release=nearest(target.release or NEWEST))
    except ConfigError as error:
        return error
    return None


_OUT_OF_RANGE = re.compile(
    r"too small|too big|is invalid, set it|has to be|have to be|must be >|less than or equal"
)


def is_out_of_range(error: ConfigError) -> bool:
    """Whether the string has the right form and only a value lies outside its range, told by PyTorch's own texts."""
    return _OUT_OF_RANGE.search(error.reason) is not None


def _filled(entry: str) -> str:
    """An entry with its unknown value made up; empty where too little of it is known."""
    if HOLE not in entry:
        return entry
    whole_value = re.fullmatch(rf"\s*(\w+)\s*([:=\s])\s*{HOLE}\s*", entry)
    if whole_value is None:
        return ""
    option = KEYS.get(whole_value[1])
    return f"{whole_value[1]}{whole_value[2]}{_PLAUSIBLE[option.kind] if option else '1'}"
