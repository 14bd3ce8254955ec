"""true-capacity: what is live, plus the request, is more than the device has."""

from __future__ import annotations

from vramdoc.diagnose.answers import confirmed, derived, ruled_out, undecided
from vramdoc.diagnose.failing import figures, size, where, without_figures
from vramdoc.diagnose.remarks import remarks
from vramdoc.diagnose.rule import Rule
from vramdoc.diagnose.shortage import ROUNDING_SLACK, Shortage, Situation, contradictory, shortage
from vramdoc.diagnose.verdict import Confidence, Verdict
from vramdoc.evidence.case import Case
from vramdoc.facts import Source

ID = "true-capacity"


def judge(case: Case) -> Verdict:
    """Confirm when neither packing the pool nor anybody else's memory would have made room."""
    found = shortage(case)
    if found is None:
        return _overflow(case) or without_figures(ID, case)
    if ID in found.sufficient:
        return _confirmed(case, found)
    if found.leading is not None:
        return ruled_out(
            ID,
            f"The live tensors and the request would fit; see {found.leading}.",
            confidence=Confidence.MEDIUM,
        )
    if found.situation is Situation.HAD_ROOM:
        return ruled_out(ID, _had_room(case, found), figures(case, found, "outside_this_allocator"))
    return _open(case, found)


def _overflow(case: Case) -> Verdict | None:
    """More than 1 EB: a size that cannot be printed."""
    if case.oom is None or "overflow" not in case.oom.extra:
        return None
    return confirmed(
        ID,
        "More than 1 EB was requested, which no device has: a shape overflowed or is negative.",
        [case.oom.extra["overflow"]],
    )


def _confirmed(case: Case, found: Shortage) -> Verdict:
    if weights := _weights(case, found):
        return weights
    sums = found.balance
    edge = (sums.unallocated or 0) >= (sums.short or 0)
    trusted = not (
        found.situation is Situation.SPILLED
        and case.crash is not None
        and "vllm" in case.crash.signs
    )
    if not trusted:
        return undecided(
            ID,
            f"The pool ({size(sums.reserved)}) is larger than the device ({size(sums.total)}): vLLM's own memory pool counts twice here.",
            [
                "driver-free bytes and the engine's memory report; this message's sums cannot be trusted"
            ],
            evidence=figures(case, found),
        )
    return confirmed(
        ID,
        _summary(case, found),
        figures(
            case,
            found,
            "reserved",
            "live",
            "short",
            "short_when_packed",
            "outside_this_allocator",
            "non_pytorch",
        ),
        confidence=Confidence.MEDIUM
        if (edge or found.may_be_others) and found.situation is Situation.FULL
        else Confidence.HIGH,
        explains=found.sufficient[ID],
        notes=remarks(case, found) if found.leading == ID else (),
    )


def _weights(case: Case, found: Shortage) -> Verdict | None:
    """A recorded model whose weights alone do not fit: then the failed request is only where loading happened to stop."""
    phases = case.manifest.phases if case.manifest is not None else ()
    needed = max(
        (int(phase.detail["weight_bytes"]) for phase in phases if "weight_bytes" in phase.detail),
        default=0,
    )
    sums = found.balance
    room = (sums.total or 0) - max(0, sums.outside or 0)
    if sums.total is None or needed <= room:
        return None
    source = (
        case.oom.requested.source
        if case.oom is not None and case.oom.requested is not None
        else Source.READ
    )
    return confirmed(
        ID,
        f"The model does not fit: its weights are {size(needed)}, and {where(case)} has {size(sums.total)}, of which {size(room)} are left for them. "
        f"{size(needed - room)} are lacking for the weights alone, before any KV cache or activation.",
        (
            derived("weights", needed, "bytes of the checkpoint's tensors", source),
            derived("weights_lack", needed - room, "weights - (total - outside)", source),
            *figures(case, found, "live", "outside_this_allocator"),
        ),
        explains=needed - room,
    )


def _summary(case: Case, found: Shortage) -> str:
    sums, here = found.balance, where(case)
    if found.situation is Situation.TOO_LARGE:
        spill = (
            f" The pool already holds {size(sums.reserved)} of it, so the driver spills into host memory (Windows and WSL do)."
            if sums.reserved and sums.total and sums.reserved > sums.total
            else ""
        )
        return f"The request of {size(sums.requested)} alone exceeds the {size(sums.total)} of {here}; live tensors hold {size(sums.live)}.{spill}"
    if found.situation is Situation.SPILLED:
        return (
            f"The pool holds {size(sums.reserved)} on a device of {size(sums.total)}: the driver spills into host memory (Windows and WSL do), "
            f"and live tensors ({size(sums.live)}) are more than the device has."
        )
    full = f"{here[0].upper()}{here[1:]} is full: live tensors hold {size(sums.live)} of {size(sums.total)}"
    if sums.free and size(sums.free) == size(sums.requested):
        return (
            f"{full}; the request of {size(sums.requested)} and the free {size(sums.free)} are equal within rounding (two printed decimals), "
            "and the driver cannot hand out the very last bytes."
        )
    if (sums.short or 0) <= 0:
        return f"{full}; the free {size(sums.free)} are hardly more than the request of {size(sums.requested)}, and the driver cannot hand out the very last bytes."
    if sums.unallocated is None:
        return f"{full}, and the request of {size(sums.requested)} finds {size(sums.free)} free."
    if (sums.unallocated or 0) >= (sums.short or 0) and found.idle_share >= ROUNDING_SLACK:
        return (
            f"{full}. The idle cache of {size(sums.unallocated)} is smaller than the request of {size(sums.requested)}; only together with the free {size(sums.free)} would it "
            "suffice, which classic segments cannot do."
        )
    if (sums.unallocated or 0) >= (sums.short or 0):
        return (
            f"{full}. The idle cache of {size(sums.unallocated)} exceeds the {size(sums.short)} that the request lacks, but it is only "
            f"{100 * found.idle_share:.1f} % of the pool: rounding slack, not fragmentation."
        )
    return (
        f"{full}. The request of {size(sums.requested)} finds {size(sums.free)} free, and even perfect packing "
        f"(idle cache {size(sums.unallocated)}) would leave it {size((sums.short or 0) - (sums.unallocated or 0))} short."
    )


def _had_room(case: Case, found: Shortage) -> str:
    sums = found.balance
    times = (sums.free or 0) // max(1, sums.requested)
    return f"{where(case)} had {size(sums.free)} free for a request of {size(sums.requested)} ({times} times as much): by these figures it is not full."


def _metal(case: Case, found: Shortage) -> Verdict | None:
    """MPS: the allowed bytes are most of a Mac's memory by default, so what PyTorch itself holds fills it."""
    oom, sums = case.oom, found.balance
    other = oom.extra.get("other_allocations") if oom is not None else None
    if (
        other is None
        or not isinstance(other.value, int)
        or sums.allowed is None
        or sums.allocated is None
    ):
        return None
    if sums.allocated <= other.value:
        return ruled_out(
            ID,
            f"PyTorch itself holds only {size(sums.allocated)}; other allocations hold {size(other.value)}.",
            confidence=Confidence.MEDIUM,
        )
    return confirmed(
        ID,
        f"The Mac's memory is full: PyTorch holds {size(sums.allocated)} of the {size(sums.allowed)} that MPS may use, other allocations {size(other.value)}, and a request of {size(sums.requested)} came on top.",
        (*figures(case, found), other),
        confidence=Confidence.MEDIUM,
        explains=sums.allocated,
    )


def _open(case: Case, found: Shortage) -> Verdict:
    sums = found.balance
    if metal := _metal(case, found):
        return metal
    if found.situation is Situation.FULL:
        rest = (sums.total or 0) - (sums.allocated or 0) - (sums.free or 0)
        return undecided(
            ID,
            f"Live tensors ({size(sums.allocated)}) and the request ({size(sums.requested)}) would fit into {size(sums.total)}, yet only "
            f"{size(sums.free)} are free: {size(rest)} are neither live nor free, held idle by the backend's own pool or by others.",
            [
                "how much the allocator's pool holds idle (this backend prints no figure)",
                "which processes hold the device (nvidia-smi)",
            ],
            evidence=figures(case, found, "neither_live_nor_free", "live_and_request"),
            explains=rest,
            notes=remarks(case, found),
        )
    room = None if sums.total is None or sums.reserved is None else sums.total - sums.reserved
    if room is not None and sums.requested > room:
        return confirmed(
            ID,
            f"The pool holds {size(sums.reserved)} of {size(sums.total)}; a request of {size(sums.requested)} cannot fit beside it.",
            figures(case, found, "reserved", "live"),
            explains=sums.requested - room,
            notes=remarks(case, found),
        )
    if contradictory(sums):
        return undecided(
            ID,
            f"The figures contradict each other: {size(sums.allocated)} allocated cannot lie in {size(sums.reserved)} reserved.",
            ["the message as torch printed it"],
            evidence=figures(case, found),
        )
    return undecided(
        ID,
        "The message does not print all that a judgement needs.",
        ["the free, total, allocated and reserved figures (the rest of the message)"],
        evidence=figures(case, found),
    )


RULE = Rule(
    id=ID,
    title="The device is full of live tensors",
    meaning=(
        "The tensors that are in use, together with the request that failed, need more memory than the device has (less what the CUDA "
        "context and libraries take). No allocator setting changes that: something must be smaller, live shorter, or move elsewhere."
    ),
    how_decided=(
        "short = requested - free; idle = reserved - allocated. Confirmed when idle < short, or idle is under 2 % of reserved (rounding slack "
        "that remains after the flush before every failure), and neither other processes, memory outside PyTorch, private pools nor a limit would "
        "have made room by themselves. Also when the request or the pool exceeds the whole device. Rounded figures are compared within their last digit."
    ),
    not_to_confuse_with=(
        "fragmentation (idle bytes that would suffice if they lay together), foreign-process, memory-limit. An idle cache that is larger than the "
        "request proves nothing when it is 1 % of a full device."
    ),
    remedies=(
        "RX-SHAPE",
        "RX-SYSMEM",
        "RX-ENGINEROOM",
        "RX-CHECKPOINT",
        "RX-BATCH",
        "RX-SDPA",
        "RX-CHUNKPREFILL",
        "RX-PAGED",
        "RX-KVQUANT",
        "RX-WSCFG",
    ),
    references=(
        "c10/cuda/CUDACachingAllocator.cpp: malloc, release_cached_blocks before raising",
        "allocator-spec 9.2, 9.4",
    ),
    judge=judge,
)
