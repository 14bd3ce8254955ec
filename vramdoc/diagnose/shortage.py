"""What a failed request lacked, and what alone would have made room for it: the decision tree that several rules share.

After the failure-pattern catalogue, sections 3.4 and 3.5. A source of bytes is *sufficient* when giving it back would have served
the request by itself, *contributing* when it is more than normal but would not. It words nothing and picks no verdict.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from enum import Enum

from vramdoc.evidence.case import Case
from vramdoc.evidence.derived import Balance, balance
from vramdoc.units import GIB, MIB

NORMAL_NON_PYTORCH = 3 * GIB // 2
"""CUDA contexts were measured at 0.3 to 1 GiB, more with NCCL or on large devices; below this (or 5 % of the device) it is normal."""
NORMAL_SHARE = 0.05
ROUNDING_SLACK = 0.02
"""Idle share of the pool after the flush that precedes every failure: 0.2 % with static caches, 10 % and more with caches that
grow by ``cat``. Below 2 % it is rounding and partly filled 20 MiB segments."""
STRONG_SHARE = 0.10
"""Idle share from which fragmentation is plain; between this and ROUNDING_SLACK it is weak."""
FOREIGN_SHARE = 0.25
"""Largest share of a device ever seen for one process's own memory outside the pool is 15 %; from a quarter on, unexplained
memory is someone else's."""
OWN_SHARE = 0.15
"""That largest share. Between it and FOREIGN_SHARE, and above the largest context, memory is someone's, but nothing says whose."""
LEAST_CONTEXT = 3 * GIB // 10
LARGEST_CONTEXT = GIB
SEGMENT = 20 * MIB
"""What a request of 1 to 10 MiB asks from CUDA (kLargeBuffer)."""
DRIVER_SLACK = 30 * MIB
"""The driver cannot hand out the very last bytes, and printed figures are rounded."""


_CAPTURE_FRAMES = ("capture_model", "cuda_graph", "cudagraph", "cuda/graphs.py", "capture")


class Situation(str, Enum):
    """Which branch of the tree applies."""

    NO_FIGURES = "no figures"
    TOO_LARGE = "the request is larger than the device"
    SPILLED = "the pool is larger than the device"
    LIMITED = "a memory limit refuses"
    HAD_ROOM = "the device had room"
    FULL = "the device is full"

    def __str__(self) -> str:
        return self.value


@dataclass(frozen=True, slots=True, kw_only=True)
class Shortage:
    """One failed request, sorted out."""

    situation: Situation
    balance: Balance
    sufficient: Mapping[str, int]
    """Verdict id -> bytes that this cause holds, for causes that explain the failure by themselves."""
    contributing: Mapping[str, int]
    """The same for causes that do not suffice."""

    @property
    def leading(self) -> str | None:
        """The sufficient cause that holds most bytes."""
        return max(self.sufficient, key=lambda cause: self.sufficient[cause], default=None)

    @property
    def lacking(self) -> int:
        """Bytes beyond the free ones that the request needed; all of it where nobody says what was free."""
        return self.balance.short or self.balance.requested

    @property
    def idle_share(self) -> float:
        """Unallocated bytes of the pool as a share of it."""
        sums = self.balance
        return (sums.unallocated or 0) / sums.reserved if sums.reserved else 0.0

    @property
    def may_be_others(self) -> bool:
        """Whether memory that nobody is known to hold is more than one process's own ever is, and would serve the request."""
        sums = self.balance
        hidden = sums.unexplained or 0
        return hidden > max(
            LARGEST_CONTEXT, OWN_SHARE * (sums.total or 0)
        ) and hidden - LEAST_CONTEXT >= (sums.short or 0)


def shortage(case: Case) -> Shortage | None:
    """Sort the case's failed request out; None when nothing failed for want of memory with a known size."""
    sums = balance(case.oom) if case.oom is not None else None
    if sums is None:
        return None
    sums = _with_table(_with_manifest(sums, case), case)
    backend = case.oom.extra.get("backend") if case.oom is not None else None
    prints_no_idle = backend is not None and backend.value == "async"
    situation = _situation(sums, is_whole=sums.reserved is not None or prints_no_idle)
    full = situation is Situation.FULL
    held = _held(sums, case) if full else {}
    short = sums.short or 0
    sufficient = {
        cause: size
        for cause, size in held.items()
        if size >= short - sums.rounding and _is_material(cause, size, sums)
    }
    if situation is Situation.LIMITED:
        sufficient = {"memory-limit": (sums.free or 0) + (sums.unallocated or 0)}
    if situation in {Situation.LIMITED, Situation.FULL} and _could_be_packed(sums):
        sufficient["fragmentation"] = sums.unallocated or 0
    if full and capturing(case) and not (sufficient.keys() - {"fragmentation"}):
        # Idle cache is not flushed during a capture, so it proves nothing; the request is the capture's own.
        sufficient = {"graph-private-pool": sums.requested}
    is_plain = full and not sufficient and (_exceeds(sums) or not _pool_is_unknown(sums))
    if is_plain or situation in {Situation.TOO_LARGE, Situation.SPILLED}:
        sufficient["true-capacity"] = max(1, short - (sums.unallocated or 0))
    return Shortage(
        situation=situation,
        balance=sums,
        sufficient=sufficient,
        contributing={
            cause: size for cause, size in held.items() if cause not in sufficient and size > 0
        },
    )


def contradictory(sums: Balance) -> bool:
    """Whether the live bytes are more than the pool that holds them: figures of two moments, or invented ones."""
    return (
        sums.reserved is not None
        and sums.allocated is not None
        and sums.allocated > sums.reserved + sums.rounding
    )


def capturing(case: Case) -> bool:
    """Whether CUDA graphs were being captured when it failed: a capture that the log begins and does not end, or its frames."""
    log = case.crash
    if log is None or "graph-capture" not in log.signs:
        return False
    in_frames = any(
        word in f"{file} {function}" for file, _, function in log.frames for word in _CAPTURE_FRAMES
    )
    return in_frames or "graph-capture-done" not in log.signs


def normal_non_pytorch(total: int | None) -> int:
    """Bytes outside the pool that one process may hold without it being worth a word."""
    return max(NORMAL_NON_PYTORCH, int(NORMAL_SHARE * (total or 0)))


def _with_manifest(sums: Balance, case: Case) -> Balance:
    """A recording knows what other processes hold, so the rest outside the pool is this process's own."""
    device = case.manifest.device if case.manifest is not None else None
    if (
        device is None
        or device.foreign_bytes is None
        or sums.process is not None
        or sums.outside is None
    ):
        return sums
    own = max(0, sums.outside - device.foreign_bytes)
    return replace(
        sums,
        others=device.foreign_bytes,
        other_count=int(device.foreign_bytes > 0),
        non_pytorch=own,
        unexplained=0,
    )


def _with_table(sums: Balance, case: Case) -> Balance:
    """Graphics processes of a table in the text are others for certain: a program that computes is listed as C or C+G."""
    if case.crash is None or case.oom is None or sums.others is not None or sums.outside is None:
        return sums
    drawing = [
        int(row.readings["used"].value)
        for row in case.crash.observations
        if row.kind == "gpu-process"
        and row.readings["type"].value == "G"
        and row.readings["device"].value == (case.oom.device or 0)
    ]
    if not drawing:
        return sums
    held = min(sum(drawing), max(0, sums.outside))
    return replace(
        sums,
        others=held,
        other_count=len(drawing),
        unexplained=(sums.unexplained or 0) - held,
    )


def _situation(sums: Balance, *, is_whole: bool) -> Situation:
    """The branch; figures that contradict each other or are cut off before the pool's own (not ``is_whole``) decide nothing."""
    total, free, reserved = sums.total, sums.free, sums.reserved
    if total is not None and sums.requested > total:
        return Situation.TOO_LARGE
    if (
        total is not None
        and reserved is not None
        and reserved > total + max(sums.rounding, DRIVER_SLACK)
    ):
        return Situation.SPILLED
    if free is None or total is None or sums.allocated is None or not is_whole:
        return Situation.NO_FIGURES
    if contradictory(sums):
        return Situation.NO_FIGURES
    has_room = free >= sums.requested + DRIVER_SLACK
    if (
        sums.over_limit is not None
        and sums.over_limit > -DRIVER_SLACK
        and free >= sums.requested - sums.rounding
    ):
        return Situation.LIMITED
    return Situation.HAD_ROOM if has_room else Situation.FULL


def _held(sums: Balance, case: Case) -> dict[str, int]:
    """Bytes that each cause outside the live tensors holds beyond what is normal."""
    normal = normal_non_pytorch(sums.total)
    held = {"graph-private-pool": sums.private_pools}
    hidden = (sums.unexplained or 0) - normal
    held["foreign-process"] = (sums.others or 0) + max(0, hidden)
    if sums.non_pytorch is not None:
        own = sums.non_pytorch - normal
        # Graphs that are being captured lie outside the pool; releases before 2.4 print no private-pool figure at all.
        captured = capturing(case) and own > sums.private_pools
        held["graph-private-pool" if captured else "non-pytorch-memory"] = own
    return {cause: size for cause, size in held.items() if size > 0}


def _exceeds(sums: Balance) -> bool:
    """Whether live bytes and the request are more than the device, whoever holds the rest of it."""
    return (
        sums.total is not None
        and sums.allocated is not None
        and sums.allocated + sums.requested > sums.total
    )


def _pool_is_unknown(sums: Balance) -> bool:
    """Whether much memory is neither live nor free, and may be idle in the pool: cudaMallocAsync prints no figure for it."""
    if (
        sums.reserved is not None
        or sums.total is None
        or sums.allocated is None
        or sums.free is None
    ):
        return False
    return sums.total - sums.allocated - sums.free > normal_non_pytorch(sums.total)


def _is_material(cause: str, size: int, sums: Balance) -> bool:
    """Whether bytes are enough to be called the reason on a full device, and not one drop among many."""
    total, reserved = sums.total or 0, sums.reserved or 0
    if cause == "graph-private-pool":
        return size >= ROUNDING_SLACK * reserved
    if cause == "foreign-process":
        hidden = sums.unexplained or 0
        return (sums.others or 0) >= NORMAL_SHARE * total or (
            hidden > normal_non_pytorch(total) and hidden >= FOREIGN_SHARE * total
        )
    return True


def _could_be_packed(sums: Balance) -> bool:
    """Whether idle bytes of the pool could have served the request, and are more than rounding.

    Any small request prints as one segment (2 or 20 MiB), so being smaller than the idle bytes tells nothing of it.

    Idle bytes below the request serve it only together with free ones, which classic segments cannot do: then they count
    only where they are a plain share of the pool.
    """
    idle = sums.unallocated
    if idle is None or not sums.reserved or idle < (sums.short or 0):
        return False
    tells = idle >= sums.requested > SEGMENT
    share = ROUNDING_SLACK if tells else STRONG_SHARE
    return idle >= share * sums.reserved and idle + (sums.free or 0) >= sums.requested
