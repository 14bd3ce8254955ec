"""Requests: what a program asked of the allocator, as columns. Under another config these stay as they are.

It knows neither where they come from (``from_trace``) nor an allocator rule.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from enum import IntEnum
from typing import TYPE_CHECKING, Any

import numpy as np

if TYPE_CHECKING:
    from collections.abc import Sequence

    import numpy.typing as npt

    Integers = npt.NDArray[np.int64]


class Op(IntEnum):
    """One thing to ask of an allocator."""

    ALLOC = 0
    FREE = 1
    """Requested and completed at once."""
    HOLD = 2
    """Freed by the program while another stream still used it."""
    COMPLETE = 3
    """That stream was done."""
    EMPTY_CACHE = 4
    FAILED = 5
    """The request of a recorded ``oom``; its size is the rounded one, as the trace has no other."""
    FLUSH = 6
    """Memory was returned just before more was taken: by ``empty_cache``, or by the allocator itself (see ``settled``)."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Requests:
    """The operations of one device in order. Columns have one entry an operation.

    ``block`` names what is allocated and freed: blocks that lived before the trace come first, ``older`` in number.
    ``event`` is the trace event that an operation comes from, -1 for one that was put in.
    """

    device: int
    op: npt.NDArray[np.uint8]
    block: npt.NDArray[np.int32]
    size: Integers
    """Requested bytes of ALLOC and FAILED, else 0."""
    stream: Integers
    pool: npt.NDArray[np.int16]
    """Index in ``pools``; of ALLOC and FAILED."""
    event: Integers
    pools: tuple[tuple[int, int], ...]
    """Pool ids; the default pool (0, 0) is the first."""
    blocks: int
    """Distinct blocks, older ones included."""
    older: OlderBlocks
    notes: tuple[str, ...] = ()
    """What the trace leaves open or had to be inferred, in sentences."""

    def __len__(self) -> int:
        return len(self.op)

    @property
    def streams(self) -> tuple[int, ...]:
        """Streams that allocate, in ascending order."""
        return tuple(np.unique(self.stream[self.op == Op.ALLOC]).tolist())

    def with_empty_cache(self, before: Sequence[int] | Integers) -> Requests:
        """The same requests with ``empty_cache`` called before each of these operations (a what-if)."""
        at = np.unique(np.asarray(before, np.int64))
        put_in = {"op": Op.EMPTY_CACHE, "block": -1, "size": 0, "stream": 0, "pool": 0, "event": -1}
        columns: dict[str, Any] = {
            name: np.insert(getattr(self, name), at, value) for name, value in put_in.items()
        }
        return replace(self, **columns)

    def without_empty_cache(self) -> Requests:
        """The same requests without the program's own ``empty_cache`` calls (a what-if)."""
        return _only(self, self.op != Op.EMPTY_CACHE)

    def settled(self, explicit: Sequence[int]) -> Requests:
        """Decide about every FLUSH: those at ``explicit`` were ``empty_cache`` calls, the others the allocator's own doing."""
        op = self.op.copy()
        op[list(explicit)] = Op.EMPTY_CACHE
        return _only(replace(self, op=op), op != Op.FLUSH)

    def rearranged(self, order: Integers) -> Requests:
        """The operations at these places, in this order."""
        return _only(self, order)

    def followed_by(self, more: Requests) -> Requests:
        """These operations and then others, on the same blocks and pools."""
        columns: dict[str, Any] = {
            name: np.concatenate((getattr(self, name), getattr(more, name))) for name in _COLUMNS
        }
        return replace(self, **columns)


@dataclass(frozen=True, slots=True, kw_only=True)
class OlderBlocks:
    """Blocks that lived before the trace began, in the order of their block numbers."""

    address: Integers
    requested: Integers
    size: Integers
    """Block size as the final snapshot shows it; 0 where the block was freed before (see ``start``)."""
    stream: Integers
    pending: npt.NDArray[np.bool_]
    """Freed before the trace began, waiting for a stream."""
    freed: Integers
    """Event that frees (or completes) it; -1 for one that outlives the trace."""

    def __len__(self) -> int:
        return len(self.address)


_COLUMNS = ("op", "block", "size", "stream", "pool", "event")


def _only(requests: Requests, keep: npt.NDArray[np.bool_] | Integers) -> Requests:
    columns: dict[str, Any] = {name: getattr(requests, name)[keep] for name in _COLUMNS}
    return replace(requests, **columns)
