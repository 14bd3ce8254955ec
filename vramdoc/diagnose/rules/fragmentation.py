"""fragmentation: idle bytes of the pool would have served the request if they lay together."""

from __future__ import annotations

from collections.abc import Iterator

from vramdoc.diagnose.answers import confirmed, derived, ruled_out, undecided
from vramdoc.diagnose.failing import figures, size, without_figures
from vramdoc.diagnose.remarks import remarks
from vramdoc.diagnose.rule import Rule
from vramdoc.diagnose.shortage import (
    ROUNDING_SLACK,
    SEGMENT,
    STRONG_SHARE,
    Shortage,
    Situation,
    shortage,
)
from vramdoc.diagnose.verdict import Confidence, Severity, Verdict
from vramdoc.evidence.case import Case
from vramdoc.facts import Fact

ID = "fragmentation"


def judge(case: Case) -> Verdict:
    """Confirm when the pool's idle bytes suffice and are more than rounding slack."""
    found = shortage(case)
    if found is None:
        return _without_failure(case)
    if ID in found.sufficient:
        return _confirmed(case, found)
    sums = found.balance
    if sums.unallocated is None:
        return undecided(
            ID,
            "The message has no figure for idle cache.",
            ["the reserved and allocated bytes of the pool, or an allocator snapshot"],
        )
    return ruled_out(ID, _why_not(found), figures(case, found, "short"))


def _confirmed(case: Case, found: Shortage) -> Verdict:
    sums = found.balance
    leads = found.leading == ID
    idle, asked = sums.unallocated or 0, sums.requested
    how = "more than" if idle >= asked else "which together with the free bytes is more than"
    return confirmed(
        ID,
        f"{size(idle)} of PyTorch's pool are idle, {how} the request of {size(asked)}, but not as one block{_hole(case)}. "
        f"Live tensors ({size(sums.live)}) and the request would fit into {size(sums.total)}.",
        (
            *figures(
                case,
                found,
                "reserved",
                "live",
                "short",
                "free_and_idle",
                "live_and_request",
                "non_pytorch",
                "outside_this_allocator",
            ),
            *_seats(case),
        ),
        confidence=_confidence(case, found),
        severity=Severity.ERROR if leads else Severity.WARNING,
        explains=idle,
        notes=(*(remarks(case, found) if leads else ()), *_notes(case, found)),
    )


def _confidence(case: Case, found: Shortage) -> Confidence:
    """Block lists decide; sums of a message make it plausible, the more so the larger the idle share."""
    if case.oom is not None and case.oom.largest_hole is not None:
        return Confidence.HIGH
    plain = (
        found.idle_share >= STRONG_SHARE
        and (found.balance.unallocated or 0) >= found.balance.requested > SEGMENT
    )
    return Confidence.MEDIUM if plain else Confidence.LOW


def _hole(case: Case) -> str:
    hole = case.oom.largest_hole if case.oom is not None else None
    return (
        ""
        if hole is None or not isinstance(hole.value, int)
        else f": the largest that the request's pool and stream can use is {size(hole.value)}"
    )


def _seats(case: Case) -> Iterator[Fact]:
    """Where a snapshot shows the idle bytes to sit."""
    extra = case.oom.extra if case.oom is not None else {}
    for name in (
        "inactive_usable",
        "inactive_other_stream",
        "inactive_other_class",
        "inactive_other_pool",
        "pending",
    ):
        if name in extra and extra[name].value:
            yield extra[name]


def _notes(case: Case, found: Shortage) -> Iterator[str]:
    sums = found.balance
    if found.idle_share < STRONG_SHARE:
        yield (
            f"The idle share is weak ({100 * found.idle_share:.0f} % of the pool) and the device is nearly full: packing serves this request, "
            "little growth beyond it."
        )
    if 0 < (sums.short or 0) < sums.requested // 4:
        yield f"Only {size(sums.short)} were lacking beyond the free bytes, even without using the idle cache."
    extra = case.oom.extra if case.oom is not None else {}
    pending = extra.get("pending")
    if (
        pending is not None
        and isinstance(pending.value, int)
        and pending.value >= (sums.short or 0) > 0
    ):
        yield f"{size(pending.value)} were freed and wait for another stream (record_stream): the same call may succeed when it is retried."
    if case.snapshot is None and case.oom_snapshot is None:
        yield (
            "If memory rises with every turn, request or step, bound what grows (chat history, KV cache, collected outputs) as well: "
            "a better layout only delays the failure."
        )


def _why_not(found: Shortage) -> str:
    sums = found.balance
    idle = sums.unallocated or 0
    if found.situation is Situation.HAD_ROOM:
        return f"The device had {size(sums.free)} free; the {size(idle)} idle in the pool cannot explain the refusal."
    if idle < (sums.short or 0) or found.situation is not Situation.FULL:
        return (
            f"Only {size(idle)} of the pool are idle, against a request of {size(sums.requested)}."
        )
    if found.idle_share < ROUNDING_SLACK:
        return f"The idle {size(idle)} are {100 * found.idle_share:.1f} % of the pool: rounding slack that every full device shows."
    return f"Idle cache ({size(idle)}) and free bytes together are less than the request of {size(sums.requested)}."


def _without_failure(case: Case) -> Verdict:
    """Nothing failed: say how much the layout holds back, as information."""
    held = case.fragmentation
    if held is None or case.oom is not None or held.reserved_bytes == 0:
        return without_figures(ID, case)
    share = held.external_bytes / held.reserved_bytes
    if share < STRONG_SHARE:
        return ruled_out(
            ID,
            f"No request failed, and {size(held.external_bytes)} of {size(held.reserved_bytes)} reserved lie idle between live blocks.",
        )
    return confirmed(
        ID,
        f"No request failed, but {size(held.external_bytes)} of {size(held.reserved_bytes)} reserved lie idle between live blocks, where empty_cache cannot return them.",
        [
            derived(
                "external_fragmentation", held.external_bytes, "idle bytes of partly used segments"
            ),
            derived("reserved", held.reserved_bytes, "segments of the snapshot"),
        ],
        severity=Severity.INFO,
        explains=held.external_bytes,
    )


RULE = Rule(
    id=ID,
    title="Idle memory lies in pieces that are too small",
    meaning=(
        "PyTorch's pool holds enough idle bytes for the request, but between live blocks: the allocator cannot move those, and CUDA gives "
        "memory back only by whole segments. Sizes that vary from step to step and caches that grow by concatenation leave such holes."
    ),
    how_decided=(
        "idle = reserved - allocated, after the flush that precedes every failure, so empty_cache cannot return it. Confirmed when idle >= requested - free, "
        "idle + free >= requested, and idle is at least 2 % of reserved (below, it is rounding: 0.2 % with static caches; caches that grow by cat leave 10 % and more). "
        "From a message it is plausible (2 to 10 % weak, above plain); the block lists of a snapshot, or a rerun under another config, prove it."
    ),
    not_to_confuse_with=(
        'true-capacity with a little slack; graph-private-pool; blocks that wait for another stream. "Fragmentation" inside the pool never makes cuBLAS fail: '
        "cuBLAS asks the driver."
    ),
    remedies=(
        "RX-EXPANDABLE",
        "RX-RETRYOOM",
        "RX-UPGRADE",
        "RX-MAXSPLIT",
        "RX-ROUND",
        "RX-ASYNC",
        "RX-LARGESEG",
        "RX-STATIC",
        "RX-CHUNK",
        "RX-PREALLOC",
    ),
    references=(
        "c10/cuda/CUDACachingAllocator.cpp: get_free_block, should_split, release_available_cached_blocks",
        "pytorch#31252",
    ),
    judge=judge,
)
