"""Private pools: which pool serves a request while scopes and graph captures are open, and how long pools live.

Names follow DeviceCachingAllocator: captures_underway, graph_pools, graph_pools_freeable.
"""

from __future__ import annotations

from dataclasses import dataclass

from vramdoc.allocator.blocks import DEFAULT_POOL, BlockPool, PoolId, PrivatePool
from vramdoc.allocator.errors import internal_assert
from vramdoc.allocator.flat_hash import FlatHash
from vramdoc.allocator.heap import Heap
from vramdoc.allocator.releases import Rules
from vramdoc.allocator.sizes import SMALL_SIZE
from vramdoc.errors import UsageError


@dataclass(frozen=True, slots=True)
class Scope:
    """An open use_mem_pool scope or graph capture."""

    pool: PoolId
    streams: frozenset[int] | None
    """Streams whose requests it takes; None for all (use_mem_pool filters by thread, and there is one here)."""
    capture: bool

    def takes(self, stream: int) -> bool:
        """Whether a request of ``stream`` is served from this scope's pool."""
        return self.streams is None or stream in self.streams


class Scopes:
    """Open scopes and the private pools of one device."""

    def __init__(self, heap: Heap, rules: Rules) -> None:
        self._heap = heap
        self._rules = rules
        self._open: list[Scope] = []
        self._freeable: FlatHash[PoolId] = FlatHash(max)
        """Ids of pools that nothing uses any more."""
        self._on_oom: list[PoolId] = []
        self._names = {"graph": 0, "user": 0}

    def new_id(self, kind: str) -> PoolId:
        """The next id: (n, 0) for a ``"graph"`` capture of its own, (0, n) for a ``"user"`` pool or a handle."""
        self._names[kind] += 1
        number = self._names[kind]
        return (number, 0) if kind == "graph" else (0, number)

    def create(self, pool: PrivatePool) -> None:
        """Register a pool with use count 1.

        Raises:
            UsageError: the release has no such kind of pool.
        """
        for wanted, known, since in (
            (pool.use_on_oom, self._rules.use_on_oom, "2.8"),
            (pool.no_split, self._rules.no_split, "2.10"),
        ):
            if wanted and not known:
                option = "use_on_oom" if pool.use_on_oom and since == "2.8" else "no_split"
                raise UsageError(f"MemPool({option}=True) came with torch {since}")
        if pool.use_on_oom:
            self._on_oom.append(pool.id)
        if self._rules.mempool_object_holds_pool:
            self._heap.private[pool.id] = pool

    def begin(self, scope: Scope) -> None:
        """Open a scope; its pool is made if there is none, else used once more."""
        if any(scope.pool == other.pool for other in self._open):
            raise UsageError("beginAllocateToPool: already recording to mempool_id")
        pool = self._heap.private.get(scope.pool)
        if pool is None:
            self._heap.private[scope.pool] = PrivatePool(scope.pool)
        elif pool.use_count == 0:
            raise internal_assert(
                "it->second->use_count > 0", "memory of the pool outlived its last use"
            )
        else:
            pool.use_count += 1
        self._open.append(scope)

    def end(self, pool: PoolId) -> None:
        """Close the scope of ``pool``; the pool stays in use until ``release``."""
        for scope in self._open:
            if scope.pool == pool:
                self._open.remove(scope)
                return
        raise UsageError(f"no open scope allocates to pool {pool}")

    def release(self, pool_id: PoolId) -> None:
        """One use less; at none the pool's free memory may be returned."""
        pool = self._heap.private.get(pool_id)
        if pool is None or pool.use_count == 0:
            raise UsageError(f"pool {pool_id} is not in use")
        pool.use_count -= 1
        if pool.use_count == 0:
            pool.no_split = False
            self._freeable.add(pool_id)

    def choose(self, size: int, stream: int, asked: PoolId | None = None) -> BlockPool:
        """The pool that serves a block of ``size`` bytes for ``stream`` (get_pool).

        ``asked`` overrules the scopes; a private pool of that id is made if there is none.
        """
        small = size <= SMALL_SIZE
        if asked is not None and asked != DEFAULT_POOL:
            return self._heap.private.setdefault(asked, PrivatePool(asked)).half(small=small)
        if asked is not None:
            return self._heap.small if small else self._heap.large
        for scope in reversed(self._open) if self._rules.innermost_scope_wins else self._open:
            if scope.takes(stream):
                return self._heap.private[scope.pool].half(small=small)
        return self._heap.small if small else self._heap.large

    def capturing(self, stream: int) -> bool:
        """Whether events and flushes are suspended for a call on ``stream``.

        Up to 2.12 any open scope does that, on every stream; from 2.13 on only a capture, on the streams that it captures.
        """
        if self._rules.scope_counts_as_capture:
            return bool(self._open)
        return any(scope.capture and scope.takes(stream) for scope in self._open)

    @property
    def inside_mempool(self) -> bool:
        """Whether a use_mem_pool scope is open."""
        return any(not scope.capture for scope in self._open)

    @property
    def context(self) -> PoolId | None:
        """The pool that calls without one mean (MemPoolContext, 2.6 and 2.7): that of the innermost use_mem_pool scope."""
        if not self._rules.mempool_is_context:
            return None
        return next((scope.pool for scope in reversed(self._open) if not scope.capture), None)

    def freeable(self) -> list[PrivatePool]:
        """Pools that nothing uses any more."""
        return [self._heap.private[pool] for pool in self._freeable]

    def forget_empty(self) -> None:
        """Drop unused pools that hold no memory of the driver."""

        def keep(pool: PoolId) -> bool:
            if self._heap.private[pool].device_allocs:
                return True
            del self._heap.private[pool]
            return False

        self._freeable.visit(keep)

    def on_oom(self) -> list[PoolId]:
        """Pools that a failed request of the default pool may use, the latest first (the order of a std::unordered_set).

        Ids of destroyed pools stay among them, as in PyTorch.
        """
        return self._on_oom[::-1]
