"""What grows, as rules see it: which tensors are KV caches, what those take, and what to cite. It judges nothing."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING

from vramdoc.crashlog.incident import CrashLog
from vramdoc.diagnose.answers import derived
from vramdoc.diagnose.code_lines import base_name, code_lines
from vramdoc.evidence.case import Case
from vramdoc.facts import Fact

if TYPE_CHECKING:
    from vramdoc.evidence.growth import Growth
    from vramdoc.evidence.regrowth import Regrowth
    from vramdoc.record.manifest import Phase

_CACHE_FILES = ("cache_utils.py", "kv_cache.py", "kvcache.py")
_CACHE = re.compile(
    r"(?:past|prev|cached?)\w*_(?:keys?|values?|kv|k|v)(?:\b|_)|(?:\b|_)(?:key|value|kv|k|v)\w*_cache\b|layer_(?:past|cache)|self\.(?:keys|values)\b"
)
"""The names that models give their caches: past_key_value, key_cache, cache_k, prev_key, layer_past ..."""


def is_cache(grown: Regrowth, case: Case) -> bool:
    """Whether a line that concatenates keeps a KV cache: by its file, its function, or its source where the traceback shows it."""
    if base_name(grown.line.path).endswith(_CACHE_FILES) or "cache" in grown.line.function.lower():
        return True
    return (
        grown.was_refused and case.crash is not None and growing_cache_line(case.crash) is not None
    )


def growth_by_marks(case: Case) -> Growth | None:
    """Growth from step to step, where the program marked its steps and some line grows; else None."""
    growth = case.growth
    return growth if growth is not None and growth.steps_are_marked and growth.sites else None


def cache_bytes(phase: Phase) -> int:
    """Bytes that the KV caches of all open conversations take by their formula, as a phase notes them; 0 where it notes none."""
    return int(phase.detail.get("live_kv_bytes", phase.detail.get("kv_bytes", 0)))


def growing_cache_line(log: CrashLog) -> Fact | None:
    """The line of the traceback that concatenates onto a cache."""
    for line in code_lines(log):
        if "cat(" in line.source and (
            _CACHE.search(line.source) or line.file.endswith(_CACHE_FILES)
        ):
            return line.fact("growing_line")
    return None


def regrown_facts(grown: Sequence[Regrowth]) -> Iterator[Fact]:
    """What was measured of each line: its bytes at the end, and the formula of its growth."""
    for part in grown:
        yield derived(
            "grown_by_copies",
            part.last_bytes,
            f"{part.first_bytes:,} + about {part.times} x {part.per_step_bytes:,} bytes; {part.tensors} at a time; {part.line}",
        )
