"""Every key of PYTORCH_CUDA_ALLOC_CONF: since when, which values, what it does and where it does nothing. Data only.

The parser (``config``), ``vramdoc explain`` and the lint rules read this one table.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from enum import Enum

from vramdoc.allocator.releases import minor


class Kind(Enum):
    """What a value looks like."""

    CHOICE = "name"
    MEBIBYTES = "MiB"
    COUNT = "count"
    FRACTION = "fraction"
    SWITCH = "True or False"
    DIVISIONS = "power of two, or [size:divisions,...,>:divisions]"
    RESERVE = "fraction or size such as 40G"
    RESERVE_BY_CLASS = "[name:fraction or size,...]"


class Reader(Enum):
    """Which of the two parsers of torch 2.10 and newer owns the key; it decides the order in which errors show."""

    CUDA = "c10/cuda/CUDAAllocatorConfig.cpp"
    GENERIC = "c10/core/AllocatorConfig.cpp"


@dataclass(frozen=True, slots=True, kw_only=True)
class Option:
    """One key. ``introduced`` is the first minor release that accepts it."""

    key: str
    kind: Kind
    reader: Reader
    default: str
    introduced: str
    valid: str
    """Valid range in words; where releases differ, it says so."""
    effect: str
    aliases: tuple[str, ...] = ()
    device_memory: bool = True
    """False: concerns pinned host memory or locking only, so it can never change device memory."""
    run_time: bool = True
    """Whether a change through the setter at run time takes effect."""
    kept: bool = True
    """Whether a later setting that does not name the key leaves it as it was (False: it goes back to its default)."""
    needs: str = ""
    """What else must hold for the option to do anything."""
    platforms: str = ""
    """Where it silently does nothing."""


_TABLE = (
    Option(
        key="backend", kind=Kind.CHOICE, reader=Reader.CUDA, default="native", introduced="1.13",
        valid="native or cudaMallocAsync", run_time=False,
        effect="chooses PyTorch's own caching allocator or NVIDIA's stream-ordered one",
    ),
    Option(
        key="max_split_size_mb", kind=Kind.MEBIBYTES, reader=Reader.GENERIC, default="unlimited", introduced="1.13",
        valid="more than 20 up to torch 2.9; at least large_segment_size_mb (20) from 2.10", kept=False,
        effect="blocks of this size and more are never split, and such blocks serve only requests of nearly their size",
    ),
    Option(
        key="max_non_split_rounding_mb", kind=Kind.MEBIBYTES, reader=Reader.GENERIC, default="20", introduced="2.6",
        valid="more than 20 up to torch 2.9; at least large_segment_size_mb (20) from 2.10",
        effect="how much larger than the request an unsplittable block may be and still serve it",
        needs="max_split_size_mb",
    ),
    Option(
        key="large_segment_size_mb", kind=Kind.MEBIBYTES, reader=Reader.GENERIC, default="20", introduced="2.11",
        valid="more than 10",
        effect="the segment for requests from 1 to 10 MiB, and the page size of large expandable segments",
    ),
    Option(
        key="roundup_power2_divisions", kind=Kind.DIVISIONS, reader=Reader.GENERIC, default="off", introduced="1.13",
        valid="a power of two, or a list of powers of two (0 switches an interval off)", kept=False,
        effect="rounds requests up to one of this many steps between powers of two, so that similar sizes share blocks",
    ),
    Option(
        key="garbage_collection_threshold", kind=Kind.FRACTION, reader=Reader.GENERIC, default="off", introduced="1.13",
        valid="above 0 and below 1", kept=False,
        effect="returns idle whole segments to the driver once use passes this fraction of the memory limit",
        needs="a memory fraction (set_per_process_memory_fraction, or per_process_memory_fraction from 2.10)",
    ),
    Option(
        key="expandable_segments", kind=Kind.SWITCH, reader=Reader.GENERIC, default="False", introduced="2.1",
        valid="True or False, spelled so",
        effect="one growing address range a stream and pool instead of separate segments, mapped page by page",
        platforms="Windows (up to 2.14 at least); ROCm before torch 2.12 on ROCm 7",
    ),
    Option(
        key="release_lock_on_cudamalloc", kind=Kind.SWITCH, reader=Reader.CUDA, default="False", introduced="2.2",
        valid="True or False, spelled so", aliases=("release_lock_on_hipmalloc",), device_memory=False,
        effect="other threads may use the allocator while one waits in cudaMalloc; the layout stays the same",
    ),
    Option(
        key="per_process_memory_fraction", kind=Kind.FRACTION, reader=Reader.CUDA, default="1.0", introduced="2.10",
        valid="from 0 to 1", run_time=False,
        effect="the memory limit every device starts with, as a fraction of its total memory",
    ),
    Option(
        key="throw_on_cudamalloc_oom", kind=Kind.SWITCH, reader=Reader.CUDA, default="False", introduced="2.12",
        valid="True or False, spelled so",
        effect="requests beyond per_process_memory_fraction are rejected at once, without freeing cached blocks",
        needs="per_process_memory_fraction",
    ),
    Option(
        key="graph_capture_record_stream_reuse", kind=Kind.SWITCH, reader=Reader.CUDA, default="False", introduced="2.9",
        valid="True or False, spelled so",
        effect="during CUDA graph capture, blocks used on several streams are reused where the graph proves it safe",
    ),
    Option(
        key="pinned_use_cuda_host_register", kind=Kind.SWITCH, reader=Reader.CUDA, default="False", introduced="2.2",
        valid="True or False, spelled so", aliases=("pinned_use_hip_host_register",), device_memory=False,
        effect="pinned host memory is made by cudaHostRegister",
    ),
    Option(
        key="pinned_num_register_threads", kind=Kind.COUNT, reader=Reader.CUDA, default="1", introduced="2.2",
        valid="a power of two, at most 128", device_memory=False,
        effect="threads that map pages of pinned host memory", needs="pinned_use_cuda_host_register",
    ),
    Option(
        key="pinned_use_background_threads", kind=Kind.SWITCH, reader=Reader.GENERIC, default="False", introduced="2.6",
        valid="True or False, spelled so", device_memory=False,
        effect="a background thread processes events of pinned host memory",
    ),
    Option(
        key="pinned_reserve_segment_size_mb", kind=Kind.COUNT, reader=Reader.CUDA, default="0", introduced="2.10",
        valid="more than 0", device_memory=False, run_time=False,
        effect="pinned host memory set aside at the start",
    ),
    Option(
        key="pinned_free_catch_all", kind=Kind.SWITCH, reader=Reader.CUDA, default="False", introduced="2.12",
        valid="True or False, spelled so", device_memory=False,
        effect="errors while freeing pinned host memory are caught",
    ),
    Option(
        key="pinned_max_round_threshold_mb", kind=Kind.MEBIBYTES, reader=Reader.GENERIC, default="unlimited",
        introduced="2.13", valid="a whole number", device_memory=False,
        effect="pinned host requests above this are not rounded up to a power of two",
    ),
    Option(
        key="pinned_max_cached_size_mb", kind=Kind.MEBIBYTES, reader=Reader.GENERIC, default="unlimited",
        introduced="2.13", valid="a whole number", device_memory=False,
        effect="pinned host blocks above this are not cached",
    ),
    Option(
        key="expandable_segments_reserve", kind=Kind.RESERVE, reader=Reader.CUDA, default="9/8 of device memory",
        introduced="2.15", valid="a positive fraction of device memory or a size; anything else is ignored with a warning",
        effect="address space set aside for each expandable segment", needs="expandable_segments",
    ),
    Option(
        key="expandable_segments_reserve_by_class", kind=Kind.RESERVE_BY_CLASS, reader=Reader.CUDA, default="none",
        introduced="2.15", valid="positive fractions or sizes by class of stream; anything else is ignored with a warning",
        effect="the same for streams of a named class", needs="expandable_segments",
    ),
)  # fmt: skip

OPTIONS: Mapping[str, Option] = {option.key: option for option in _TABLE}
"""Options by key, in the order of PyTorch's documentation."""
KEYS: Mapping[str, Option] = {
    name: option for option in _TABLE for name in (option.key, *option.aliases)
}
"""Options by every accepted spelling."""


def keys_of(release: str) -> frozenset[str]:
    """The keys (aliases included) that ``release`` accepts."""
    number = minor(release)
    return frozenset(name for name, option in KEYS.items() if minor(option.introduced) <= number)
