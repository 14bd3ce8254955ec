"""Block, BlockPool and what they belong to: pieces of segments, and the ordered sets of the free ones.

The order of free blocks decides which block serves a request (BlockComparatorSize): stream, size, then the release's
tie-break, then address.
"""

from __future__ import annotations

from bisect import bisect_left, insort

from vramdoc.allocator.flat_hash import FlatHash

PoolId = tuple[int, int]
DEFAULT_POOL: PoolId = (0, 0)


class Block:
    """A piece of a segment: allocated, waiting for events, free, or (expandable segments) not mapped."""

    __slots__ = (
        "address",
        "allocated",
        "event_count",
        "expandable_segment",
        "gc_base",
        "mapped",
        "next",
        "pool",
        "prev",
        "requested_size",
        "size",
        "stream",
        "stream_uses",
        "tie",
    )

    def __init__(
        self,
        stream: int,
        size: int,
        pool: BlockPool,
        address: int,
        tie: int,
        expandable_segment: ExpandableSegment | None = None,
    ) -> None:
        self.stream = stream
        self.size = size
        self.requested_size = 0
        """Of an inactive block it is stale: that of the last allocation made with this object."""
        self.pool = pool
        self.address = address
        self.allocated = False
        self.mapped = True
        self.prev: Block | None = None
        self.next: Block | None = None
        self.event_count = 0
        self.stream_uses: FlatHash[int] | None = None
        """Other streams that used the block since it was allocated; None for none."""
        self.gc_base = 0
        self.tie = tie
        self.expandable_segment = expandable_segment

    @property
    def is_split(self) -> bool:
        """Whether the segment holds other blocks beside this one."""
        return self.prev is not None or self.next is not None

    @property
    def is_active(self) -> bool:
        """Allocated, or freed but waiting for another stream's event."""
        return self.allocated or self.event_count > 0 or self.stream_uses is not None

    def splice(self, before: Block | None, after: Block | None) -> None:
        """Put the block between two neighbours."""
        self.prev, self.next = before, after
        if before is not None:
            before.next = self
        if after is not None:
            after.prev = self


class BlockPool:
    """The small or the large half of a pool: its free blocks, and the parts of its segments that are not mapped."""

    __slots__ = ("free", "owner", "searches", "small", "unmapped")

    def __init__(self, *, small: bool, owner: PrivatePool | None = None) -> None:
        self.small = small
        self.owner = owner
        self.searches = 0
        """get_free_blocks_call_count: the clock of garbage collection."""
        self.free: list[tuple[int, int, int, int, Block]] = []
        """Free mapped blocks behind their keys, in order."""
        self.unmapped: list[tuple[int, int, Block]] = []
        """Unmapped blocks behind stream and address, in order."""

    @property
    def id(self) -> PoolId:
        """Pool id as snapshots show it."""
        return DEFAULT_POOL if self.owner is None else self.owner.id

    def lower_bound(self, stream: int, size: int) -> int:
        """Index of the first free block that is not before (stream, size) in order."""
        return bisect_left(self.free, (stream, size))

    def insert(self, block: Block) -> None:
        """Add a free block; its age for garbage collection starts again."""
        block.gc_base = self.searches
        insort(self.free, (block.stream, block.size, block.tie, block.address, block))

    def remove(self, block: Block) -> None:
        """Take a block out of the free set."""
        key = (block.stream, block.size, block.tie, block.address)
        index = bisect_left(self.free, key)
        assert self.free[index][4] is block, "the block's key changed while it was free"
        del self.free[index]

    def insert_unmapped(self, block: Block) -> None:
        """Add an unmapped block."""
        insort(self.unmapped, (block.stream, block.address, block))

    def remove_unmapped(self, block: Block) -> None:
        """Take out an unmapped block."""
        index = bisect_left(self.unmapped, (block.stream, block.address))
        assert self.unmapped[index][2] is block, "the block moved while it was unmapped"
        del self.unmapped[index]

    @property
    def free_bytes(self) -> int:
        """Bytes of all free mapped blocks."""
        return sum(entry[1] for entry in self.free)


class PrivatePool:
    """The pair of pools of a CUDA graph or a torch.cuda.MemPool."""

    def __init__(
        self,
        pool_id: PoolId,
        *,
        use_on_oom: bool = False,
        no_split: bool = False,
        custom_allocator: bool = False,
    ) -> None:
        self.id = pool_id
        self.use_on_oom = use_on_oom
        self.no_split = no_split
        self.custom_allocator = custom_allocator
        self.use_count = 1
        self.device_allocs = 0
        """cudaMalloc_count: successful alloc_block calls less releases; the pool goes when it is 0 and unused."""
        self.small = BlockPool(small=True, owner=self)
        self.large = BlockPool(small=False, owner=self)

    def half(self, *, small: bool) -> BlockPool:
        """The small or the large pool."""
        return self.small if small else self.large


class ExpandableSegment:
    """One reserved address range that is mapped page by page; belongs to one stream of one BlockPool."""

    __slots__ = ("address", "mapped", "page", "pages")

    def __init__(self, address: int, page: int, pages: int) -> None:
        self.address = address
        self.page = page
        """Bytes a page: 2 MiB in small pools, large_segment_size in large ones."""
        self.pages = pages
        self.mapped = bytearray(pages)
        """One flag a page."""

    @property
    def size(self) -> int:
        """Bytes of address space."""
        return self.page * self.pages

    def covering(self, address: int, size: int) -> tuple[int, int]:
        """First page and one past the last page that [address, address + size) touches."""
        first = (address - self.address) // self.page
        return first, -(-(address + size - self.address) // self.page)

    def inside(self, address: int, size: int) -> tuple[int, int]:
        """First page and one past the last page that lie wholly in [address, address + size)."""
        first = -(-(address - self.address) // self.page)
        return first, (address + size - self.address) // self.page

    def mark(self, first: int, end: int, *, mapped: bool) -> tuple[int, int]:
        """Set the flags of pages [first, end); returns address and size of that range."""
        self.mapped[first:end] = bytes([mapped]) * (end - first)
        return self.address + first * self.page, (end - first) * self.page
