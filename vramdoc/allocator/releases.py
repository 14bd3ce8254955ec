"""What changed in the allocator from release to release, as data: each release is the one before it with its changes.

Names are ours; what each difference means stands beside it, with the PyTorch release that it was seen in. Behaviour that
never changed between 2.4 and 2.15 (rounding, best fit, merging, statistics) is code, not data, and lives elsewhere.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, replace
from enum import Enum
from typing import Any

from vramdoc.errors import UsageError


class TieBreak(Enum):
    """What orders free blocks of one stream that have the same size (BlockComparatorSize)."""

    ADDRESS = "address"
    BLOCK_COUNTER = "counter of the Block object"
    SEGMENT_COUNTER = "counter of the segment, then address"


class Hint(Enum):
    """The last sentences of an out-of-memory message."""

    ALWAYS = "printed even with expandable segments on"
    SEGMENTS_OFF = "left out with expandable segments on"
    ADDRESS_SPACE = "with expandable segments on, another hint about address space"


_DOCS = "https://pytorch.org/docs/stable/notes/cuda.html#environment-variables"
_NEW_DOCS = (
    "https://docs.pytorch.org/docs/stable/notes/cuda.html"
    "#optimizing-memory-usage-with-pytorch-cuda-alloc-conf"
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Rules:
    """The traits of one minor release. The defaults are those of 2.4."""

    release: str = "2.4"
    tie_break: TieBreak = TieBreak.ADDRESS
    asserts_on_expandable: bool = True
    """Garbage collection and release_available_cached_blocks trip over expandable blocks (fixed by PR #134338)."""
    lenient_grammar: bool = False
    """The ConfigTokenizer of c10/core/AllocatorConfig.h: separators are not verified, bad values are ValueErrors."""
    generic_alloc_conf: bool = False
    """PYTORCH_ALLOC_CONF is read where PYTORCH_CUDA_ALLOC_CONF is not set."""
    divisions_word: str = "divisons"
    """The spelling in the roundup_power2_divisions errors."""
    tail_spares_last_boundary: bool = False
    """``>`` in a roundup list starts behind the last boundary instead of on it."""
    resets_non_split_rounding: bool = False
    """A new setting without max_non_split_rounding_mb puts it back to its default."""
    whole_fraction_lifts_limit: bool = False
    """A memory fraction of 1.0 removes the limit; before, it set one that enables garbage collection."""
    rounds_limit: bool = False
    """The limit is rounded to the nearest byte instead of truncated."""
    use_on_oom: bool = False
    """MemPool(use_on_oom=True) exists."""
    use_on_oom_spares_cache: bool = False
    """Such a pool is tried before cached blocks are given back; before, only when even that had not helped."""
    use_on_oom_takes_expandable: bool = True
    """With expandable segments on, blocks of expandable segments of such a pool serve, and are cut as finely as others."""
    no_split: bool = False
    """MemPool(no_split=True) exists."""
    expandable_private_pools: bool = False
    """New memory of private pools comes from expandable segments too; before, only blocks were cut as finely."""
    mempool_object_holds_pool: bool = False
    """A MemPool object keeps its pool in use; before, a pool was unused again whenever its scope closed."""
    mempool_is_context: bool = False
    """While a use_mem_pool scope is open, empty_cache means its pool, which is in use, and does nothing; snapshots show it alone."""
    mempool_refuses_expandable: bool = False
    """With expandable segments on, new memory inside a use_mem_pool scope is refused with a RuntimeError."""
    innermost_scope_wins: bool = False
    """Of nested use_mem_pool scopes the last opened one serves a request; before, the first opened one."""
    empty_cache_asserts_in_capture: bool = True
    """empty_cache fails an internal assertion during a capture; later it leaves the default pools alone."""
    scope_counts_as_capture: bool = True
    """An open use_mem_pool scope suspends event processing and flushing as a graph capture does."""
    refuses_hopeless_expandable: bool = False
    """A request larger than a whole fresh range fails without keeping the range."""
    counts_rejections: bool = False
    """throw_on_cudamalloc_oom and num_oom_rejections exist."""
    counts_private_pools: bool = False
    """memory_stats has reserved_bytes_by_private_pools."""
    message_shows_limit: bool = False
    """The out-of-memory message prints "... allowed; "."""
    hint: Hint = Hint.ALWAYS
    hint_variable: str = "PYTORCH_CUDA_ALLOC_CONF"
    hint_url: str = _DOCS


_CHANGES: Mapping[str, Mapping[str, Any]] = {
    "2.4": {},
    "2.5": {
        "asserts_on_expandable": False,
        "message_shows_limit": True,
        "expandable_private_pools": True,
    },
    "2.6": {"mempool_object_holds_pool": True, "mempool_is_context": True},
    "2.7": {"mempool_refuses_expandable": True},
    "2.8": {
        "divisions_word": "divisions",
        "mempool_is_context": False,
        "mempool_refuses_expandable": False,
        "empty_cache_asserts_in_capture": False,
        "use_on_oom": True,
    },
    "2.9": {},
    "2.10": {
        "lenient_grammar": True,
        "generic_alloc_conf": True,
        "tail_spares_last_boundary": True,
        "whole_fraction_lifts_limit": True,
        "innermost_scope_wins": True,
        "use_on_oom_takes_expandable": False,
        "no_split": True,
        "hint_variable": "PYTORCH_ALLOC_CONF",
    },
    "2.11": {
        "resets_non_split_rounding": True,
        "use_on_oom_spares_cache": True,
        "hint_variable": "PYTORCH_CUDA_ALLOC_CONF",
        "hint_url": _NEW_DOCS,
    },
    "2.12": {"tie_break": TieBreak.BLOCK_COUNTER, "counts_rejections": True},
    "2.13": {
        "tie_break": TieBreak.SEGMENT_COUNTER,
        "rounds_limit": True,
        "scope_counts_as_capture": False,
        "counts_private_pools": True,
    },
    "2.14": {"hint": Hint.SEGMENTS_OFF},
    "2.15": {"hint": Hint.ADDRESS_SPACE, "refuses_hopeless_expandable": True},
}


def _chain() -> dict[str, Rules]:
    chain, rules = {}, Rules()
    for release, changes in _CHANGES.items():
        rules = replace(rules, release=release, **changes)
        chain[release] = rules
    return chain


RULES: dict[str, Rules] = _chain()
"""Rules by minor release, oldest first."""
OLDEST, NEWEST = next(iter(RULES)), next(reversed(RULES))


def minor(release: str) -> tuple[int, int]:
    """``"2.14.1+cu130"`` to ``(2, 14)``.

    Raises:
        UsageError: the text does not start with a release number.
    """
    match = re.match(r"v?(\d+)\.(\d+)", release)
    if match is None:
        raise UsageError(f"{release!r} is not a torch release", "write for example 2.14 or 2.14.1")
    return int(match[1]), int(match[2])


def rules_for(release: str) -> Rules:
    """The rules of ``release`` (``"2.14"``, ``"2.14.1"``, ``"2.14.1+cu130"``).

    Raises:
        UsageError: the release is not one whose allocator was examined.
    """
    number = minor(release)
    rules = RULES.get(f"{number[0]}.{number[1]}")
    if rules is None:
        raise UsageError(
            f"torch {release} is not simulated: known are {OLDEST} to {NEWEST}",
            f"use the nearest release, {nearest(release)}",
        )
    return rules


def nearest(release: str) -> str:
    """The simulated release closest to ``release``: itself when it is one, else the oldest or the newest."""
    name = ".".join(map(str, minor(release)))
    if name in RULES:
        return name
    return OLDEST if minor(release) < minor(OLDEST) else NEWEST
