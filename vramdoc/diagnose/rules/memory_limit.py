"""memory-limit: a limit refuses while the device has room."""

from __future__ import annotations

from vramdoc.diagnose.answers import cite, confirmed, derived, quote, ruled_out, undecided
from vramdoc.diagnose.failing import figures, size, where, without_figures
from vramdoc.diagnose.remarks import remarks
from vramdoc.diagnose.rule import Rule
from vramdoc.diagnose.shortage import Shortage, Situation, normal_non_pytorch, shortage
from vramdoc.diagnose.verdict import Confidence, Severity, Verdict
from vramdoc.evidence.case import Case
from vramdoc.units import GIB

ID = "memory-limit"
XPU_SINGLE_ALLOCATION = 4 * GIB
"""Intel's runtime refuses single allocations from 4 GiB on unless relaxed limits are on (intel-extension-for-pytorch#325)."""

NO_ACCOUNT = 1 << 62
"""More than this is a difference below zero in an unsigned counter."""


def judge(case: Case) -> Verdict:
    """Confirm when a fraction, a watermark or a single-allocation ceiling binds."""
    found = shortage(case)
    log = case.crash
    if log is not None and (refused := log.first("cuda-oom")) and "preemptively" in refused.text:
        return confirmed(
            ID,
            f"The request of {refused.readings['requested'].text if 'requested' in refused.readings else 'unknown size'} was refused because it would pass per_process_memory_fraction.",
            [quote(refused)],
        )
    if found is None:
        return (
            _share(case) or _mps_buffer(case) or _engine_budget(case) or without_figures(ID, case)
        )
    backend = case.oom.extra.get("backend") if case.oom is not None else None
    if backend is not None and backend.value == "mps":
        return _mps(case, found)
    if backend is not None and backend.value == "xpu":
        return _xpu(case, found)
    if ID in found.sufficient:
        return _confirmed(case, found)
    if found.situation is Situation.HAD_ROOM:
        return _had_room(case, found)
    sums = found.balance
    if sums.allowed is not None:
        return ruled_out(
            ID,
            f"The limit of {size(sums.allowed)} was not reached by this request, or is the whole device.",
            figures(case, found),
        )
    return ruled_out(ID, "The device itself was full; no limit is printed.")


def _share(case: Case) -> Verdict | None:
    """A library that cuts a GPU into shares (HAMi) refuses before the driver is asked."""
    refused = case.crash.first("vgpu-limit") if case.crash is not None else None
    if refused is None:
        return None
    wanted, limit = refused.readings["wanted"], refused.readings["limit"]
    if int(wanted.value) > NO_ACCOUNT:
        return undecided(
            ID,
            f"HAMi refuses, but its own account of this process ({wanted.value} bytes in use) is below zero and wrapped around: what is in use cannot be told from it (HAMi#1181).",
            ["nvidia-smi on the host, and the same run after the container was made anew"],
            evidence=[quote(refused)],
        )
    return confirmed(
        ID,
        f"The container's share of the GPU is used up: HAMi allows {size(int(limit.value))}, and this request would have made it {size(int(wanted.value))}. "
        "The driver was not asked; the GPU itself may have room. What CUDA reports behind it is this refusal.",
        [
            quote(refused),
            derived("with_this_request", int(wanted.value), "the first figure of the message"),
            derived("allowed_share", int(limit.value), "the second figure of the message"),
        ],
        explains=int(wanted.value) - int(limit.value),
        notes=["Ask for a larger share (nvidia.com/gpumem), or keep less alive at once."],
    )


def _confirmed(case: Case, found: Shortage) -> Verdict:
    sums = found.balance
    share = (sums.allowed or 0) / (sums.total or 1)
    return confirmed(
        ID,
        f"The per-process memory limit of {size(sums.allowed)} ({share:.2g} of {size(sums.total)}) is reached: {size(sums.reserved)} are reserved. "
        f"{size(sums.free)} of {where(case)} are free but not permitted.",
        figures(case, found, "reserved", "over_limit", "live"),
        explains=found.sufficient[ID],
        notes=remarks(case, found) if found.leading == ID else (),
    )


def _had_room(case: Case, found: Shortage) -> Verdict:
    sums = found.balance
    return undecided(
        ID,
        f"{size(sums.free)} were free for a request of {size(sums.requested)} ({(sums.free or 0) // max(1, sums.requested)} times as much): by these figures {where(case)} is not full. "
        "The refusal came from the driver or the operating system, or from a limit that this message does not print.",
        [
            "whether a memory fraction is set (torch 2.1 to 2.4 do not print it)",
            "the host's commit limit and page file (Windows), the WDDM budget, and the limits of a container, MIG slice or MPS server",
            "the first error of the log: an earlier failed allocation or a pool that may not grow (MemPool, graph capture)",
        ],
        evidence=figures(case, found, "reserved", "outside_this_allocator"),
        notes=remarks(case, found),
    )


def _mps(case: Case, found: Shortage) -> Verdict:
    sums = found.balance
    other = case.oom.extra.get("other_allocations") if case.oom is not None else None
    others = int(other.value) if other is not None else 0
    if sums.allowed is None or sums.allocated is None:
        return undecided(ID, "The MPS message is cut off.", ["its figures"])
    used = sums.allocated + others
    own_fills_it = sums.allocated > others
    return confirmed(
        ID,
        f"The MPS limit is reached: {size(sums.allocated)} of PyTorch and {size(others)} of other allocations are {size(used)}; with the request of {size(sums.requested)} that passes the allowed {size(sums.allowed)}.",
        (
            *figures(case, found),
            *((other,) if other else ()),
            derived("used", used, "MPS allocated + other allocations"),
        ),
        confidence=Confidence.MEDIUM,
        severity=Severity.WARNING if own_fills_it else Severity.ERROR,
        explains=used + sums.requested - sums.allowed,
        notes=[
            "Setting PYTORCH_MPS_HIGH_WATERMARK_RATIO=0.0 removes the guard and adds no memory; it must be in the environment before Python starts.",
            '"Private pool" is a Metal pool here, not a CUDA graph\'s.',
        ],
    )


def _xpu(case: Case, found: Shortage) -> Verdict:
    sums = found.balance
    room = None if sums.total is None or sums.reserved is None else sums.total - sums.reserved
    if sums.requested >= XPU_SINGLE_ALLOCATION and room is not None and room >= sums.requested:
        return confirmed(
            ID,
            f"{size(sums.reserved)} are reserved on a device of {size(sums.total)}, yet one allocation of {size(sums.requested)} is refused: that is a limit for a single allocation "
            "(4 GiB in Intel's runtime by default), not capacity.",
            figures(case, found, "reserved"),
            confidence=Confidence.MEDIUM,
            explains=sums.requested,
            notes=remarks(case, found),
        )
    return ruled_out(
        ID,
        "The request is below the 4 GiB ceiling of a single allocation, or does not fit beside what is reserved.",
        confidence=Confidence.MEDIUM,
    )


def _mps_buffer(case: Case) -> Verdict | None:
    incident = case.crash.first("mps-buffer") if case.crash is not None else None
    if incident is None:
        return None
    asked = incident.readings["requested"]
    return confirmed(
        ID,
        f"One Metal buffer of {asked.text} is more than the device allows for a single buffer.",
        [cite(asked)],
        confidence=Confidence.MEDIUM,
    )


def _engine_budget(case: Case) -> Verdict | None:
    """The engine's own budget asks for more than a context and a desktop leave."""
    incident = case.crash.first("engine-budget") if case.crash is not None else None
    if incident is None:
        return None
    free, total, wanted = (
        int(incident.readings[name].value) for name in ("free", "total", "requested")
    )
    if total - free > normal_non_pytorch(total):
        return ruled_out(ID, "The engine's budget would fit an empty device.")
    return confirmed(
        ID,
        f"The engine's budget of {size(wanted)} is more than the {size(free)} that context and desktop leave of {size(total)}.",
        [cite(incident.readings[name]) for name in ("free", "total", "requested")],
        confidence=Confidence.MEDIUM,
        explains=wanted - free,
    )


RULE = Rule(
    id=ID,
    title="A memory limit refuses while the device has room",
    meaning=(
        "set_per_process_memory_fraction (or per_process_memory_fraction in the allocator's settings), the MPS watermark, an engine's budget or a runtime's ceiling for single allocations refused the request; "
        "the device itself could have served it."
    ),
    how_decided=(
        '"allowed" is printed, reserved + requested passes it, and free covers the request. torch 2.1 to 2.4 never print the limit, so free bytes well above the request leave it open there. '
        "XPU: a single request of 4 GiB or more that the rest of the device could hold. MPS: allocated + other + requested above max allowed."
    ),
    not_to_confuse_with="true-capacity: the device is not full. 17179869184.00 GiB is 2^64 bytes and means that no limit is set.",
    remedies=(
        "RX-SHARE",
        "RX-MPSOTHERS",
        "RX-LIMIT",
        "RX-GCTHRESH",
        "RX-MPSLIMIT",
        "RX-XPULIMIT",
        "RX-ENGINEBUDGET",
    ),
    references=(
        "c10/cuda/CUDACachingAllocator.cpp: set_allowed_memory_maximum",
        "pytorch#111363",
        "aten/src/ATen/mps/MPSAllocator.mm",
    ),
    judge=judge,
)
