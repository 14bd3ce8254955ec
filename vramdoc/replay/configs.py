"""Which configs are worth comparing: a default set that the release and platform accept, and a grid to search.

Strings only; what comes of them is measured in ``compare``.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterator

from vramdoc.allocator.config import AllocatorConfig, ConfigError
from vramdoc.allocator.options import OPTIONS
from vramdoc.allocator.releases import minor

_DEFAULTS = (
    "",
    "expandable_segments:True",
    "max_split_size_mb:128",
    "max_split_size_mb:512",
    "roundup_power2_divisions:4",
    "roundup_power2_divisions:[256:1,512:2,1024:4,>:8]",
    "expandable_segments:True,roundup_power2_divisions:4",
    "large_segment_size_mb:64",
)
"""One representative of each mechanism: growing segments, less splitting, coarser sizes, larger shared segments."""

_SPLITS = (None, 32, 64, 128, 256, 512, 1024)
_DIVISIONS = (None, 2, 4, 8, 16)
_LARGE = (None, 40, 64, 128)
_GC = (None, 0.6, 0.8, 0.9)


def has_expandable_segments(
    release: str, system: str, *, rocm: tuple[int, int] | None = None
) -> bool:
    """Whether expandable segments do anything there; elsewhere PyTorch warns once and goes on without.

    Args:
        release: torch release.
        system: ``"Linux"``, ``"Windows"``, as ``platform.system()`` names it.
        rocm: version of ROCm where the build is one for AMD devices.
    """
    if system != "Linux":
        return False
    if rocm is None:
        return True
    return minor(release) >= (2, 15) or (minor(release) >= (2, 12) and rocm >= (7, 0))


def default_configs(
    release: str, system: str = "Linux", *, rocm: tuple[int, int] | None = None
) -> tuple[str, ...]:
    """The default set, the plain allocator first."""
    expandable = has_expandable_segments(release, system, rocm=rocm)
    return tuple(
        text
        for text in _DEFAULTS
        if is_accepted(text, release) and (expandable or "expandable_segments" not in text)
    )


def search_grid(
    release: str,
    system: str = "Linux",
    *,
    rocm: tuple[int, int] | None = None,
    limited: bool = False,
) -> tuple[str, ...]:
    """Every combination of the numeric options' usual values that the release accepts.

    Args:
        release: torch release.
        system: see ``has_expandable_segments``.
        rocm: see ``has_expandable_segments``.
        limited: whether a memory limit is set; without one garbage_collection_threshold does nothing and is left out.
    """
    expandable = has_expandable_segments(release, system, rocm=rocm)
    return tuple(
        text
        for text in _combinations(expandable=expandable, limited=limited)
        if is_accepted(text, release)
    )


def _combinations(*, expandable: bool, limited: bool) -> Iterator[str]:
    for divisions, large in itertools.product(_DIVISIONS, _LARGE):
        common = (("roundup_power2_divisions", divisions), ("large_segment_size_mb", large))
        for split, gc in itertools.product(_SPLITS, _GC if limited else (None,)):
            if split is not None and large is not None and split < large:
                continue
            yield _text(
                (*common, ("max_split_size_mb", split), ("garbage_collection_threshold", gc))
            )
        if expandable:
            yield _text((("expandable_segments", "True"), *common))


def _text(options: tuple[tuple[str, object], ...]) -> str:
    return ",".join(f"{key}:{value}" for key, value in options if value is not None)


def is_accepted(text: str, release: str) -> bool:
    """Whether the release takes the string without an error."""
    try:
        AllocatorConfig.parse(text, release=release)
    except ConfigError:
        return False
    return True


def ineffective(config: AllocatorConfig, *, expandable: bool, limited: bool) -> tuple[str, ...]:
    """Parts of a config that change nothing about device memory, in sentences.

    Args:
        config: as parsed.
        expandable: whether expandable segments do anything on the platform.
        limited: whether a memory limit is set.
    """
    found = []
    if config.expandable_segments and not expandable:
        found.append(
            "expandable_segments does nothing on this platform: PyTorch warns once and goes on without"
        )
    if (
        config.garbage_collection_threshold
        and not limited
        and config.per_process_memory_fraction == 1.0
    ):
        found.append("garbage_collection_threshold does nothing without a memory fraction")
    host = [key for key in config.host if not OPTIONS[key].device_memory]
    if host:
        found.append(f"{', '.join(host)} concern pinned host memory only")
    return tuple(found)
