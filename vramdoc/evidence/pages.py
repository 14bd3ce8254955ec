"""Pages of expandable segments: how large they are and how many lie wholly inside a free block (allocator-spec 4.1, 7.3)."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from vramdoc.allocator.sizes import SMALL_BUFFER
from vramdoc.units import MIB

if TYPE_CHECKING:
    from vramdoc.snapshot.model import BlockInfo, SegmentInfo, Snapshot

SMALL_PAGE = SMALL_BUFFER
LARGE_PAGE = 20 * MIB
"""kLargeBuffer, unless ``large_segment_size_mb`` (2.11+) says otherwise. A snapshot has no key for it."""
_LARGE_SEGMENT_SIZE = re.compile(r"large_segment_size_mb\s*:\s*(\d{1,7})")


def page_bytes(snapshot: Snapshot, segment: SegmentInfo) -> int:
    """The page size of ``segment``, were it expandable."""
    return SMALL_PAGE if segment.segment_type == "small" else large_segment_size(snapshot)


def large_segment_size(snapshot: Snapshot) -> int:
    """Size of a segment that requests below 10 MiB share, and of a page of a large expandable segment."""
    named = _LARGE_SEGMENT_SIZE.search(snapshot.alloc_conf)
    return max(int(named[1]), 1) * MIB if named else LARGE_PAGE


def whole_pages(segment: SegmentInfo, block: BlockInfo, page: int) -> int:
    """Bytes of whole pages inside ``block``; a mapped run starts at a page's boundary."""
    start = block.address - segment.address
    first, last = -(-start // page), (start + block.size) // page
    return max(last - first, 0) * page
