"""The twins of ``inner/replay.h``: every struct and enumeration that crosses into the inner loop, field by field.

It knows neither what fills them nor what the loop does with them (``native``).
"""

from __future__ import annotations

from ctypes import POINTER, Structure, c_double, c_int16, c_int32, c_int64, c_uint8, c_uint64

from vramdoc.allocator.releases import TieBreak
from vramdoc.allocator.statistics import Statistics

POOL_KINDS, COUNTERS, SCALARS = 3, len(Statistics.BY_POOL), len(Statistics.SCALARS)
LEVELS = ("operation", "reserved", "active", "allocated", "requested", "returnable")
TIES = {TieBreak.ADDRESS: 0, TieBreak.BLOCK_COUNTER: 1, TieBreak.SEGMENT_COUNTER: 2}
DONE, OUT_OF_MEMORY, REJECTED, DIVERGED, UNDEFINED, ASSERTION, HOST_MEMORY = range(7)


class Rules(Structure):
    """What the config and the release decide."""

    _fields_ = [
        *(
            (name, c_uint64)
            for name in ("max_split_size", "max_non_split_rounding", "large_segment_size")
        ),
        ("divisions", c_uint64 * 16),
        ("gc_threshold", c_double),
        *((name, c_uint64) for name in ("limit", "reject_above", "reserve")),
        *(
            (name, c_int64)
            for name in (
                "expandable",
                "expandable_private_pools",
                "tie_break",
                "asserts_on_expandable",
                "refuses_hopeless_expandable",
            )
        ),
    ]


class Driver(Structure):
    """The device: what the loop may take of it."""

    _fields_ = [(name, c_uint64) for name in ("capacity", "in_use", "used", "next_address")]


class StartBlock(Structure):
    """One block that is there when the replay begins."""

    _fields_ = [
        *(
            (name, c_uint64)
            for name in ("address", "size", "requested", "tie", "segment", "page", "pages")
        ),
        *((name, c_int64) for name in ("stream", "pool", "number")),
        *((name, c_uint8) for name in ("small", "linked", "mapped", "state", "expandable")),
        ("padding", c_uint8 * 3),
    ]


class Columns(Structure):
    """The requests."""

    _fields_ = [
        ("count", c_int64),
        ("op", POINTER(c_uint8)),
        ("block", POINTER(c_int32)),
        ("size", POINTER(c_int64)),
        ("stream", POINTER(c_int64)),
        ("pool", POINTER(c_int16)),
    ]


class Recorded(Structure):
    """The recorded events of segments, where the replay follows them."""

    _fields_ = [
        ("count", c_int64),
        ("action", POINTER(c_uint8)),
        *((name, POINTER(c_int64)) for name in ("address", "size", "stream")),
        ("has_requests", c_int64),
    ]


class Stat(Structure):
    """One statistic of one pool."""

    _fields_ = [(name, c_int64) for name in ("current", "peak", "allocated", "freed")]


class Peak(Structure):
    """The moment of most reserved memory."""

    _fields_ = [(name, c_int64) for name in LEVELS]


class Outcome(Structure):
    """What came of it."""

    _fields_ = [
        ("stats", (Stat * POOL_KINDS) * COUNTERS),
        ("oversize_allocations", Stat),
        ("oversize_segments", Stat),
        ("scalars", c_int64 * SCALARS),
        ("peak", Peak),
        *((name, c_int64) for name in ("operations", "avoided", "ending")),
        *(
            (name, c_int64)
            for name in (
                "failed_operation",
                "failed_tried",
                "failed_free",
                "failed_reserved",
                "failed_active",
            )
        ),
        *((name, c_int64) for name in ("cursor", "difference", "actual_action")),
        *((name, c_uint64) for name in ("actual_address", "actual_size")),
        ("actual_stream", c_int64),
    ]


class Job(Structure):
    """One call."""

    _fields_ = [
        ("rules", POINTER(Rules)),
        ("driver", Driver),
        *((name, c_int64) for name in ("pools", "blocks", "start_count")),
        ("counter", c_uint64),
        ("start", POINTER(StartBlock)),
        ("requests", Columns),
        ("recorded", Recorded),
        ("private_reserved", POINTER(Stat)),
        *((name, POINTER(c_int64)) for name in ("reserved", "active", "allocated")),
        ("explicit_flushes", POINTER(c_uint8)),
    ]
