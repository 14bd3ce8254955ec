"""graph-private-pool: CUDA graphs (or a MemPool) keep memory that nothing else may use."""

from __future__ import annotations

from vramdoc.crashlog.incident import Incident
from vramdoc.diagnose.answers import cite, confirmed, quote, ruled_out, undecided
from vramdoc.diagnose.failing import figures, size, unnumbered, without_figures
from vramdoc.diagnose.remarks import remarks
from vramdoc.diagnose.rule import Rule
from vramdoc.diagnose.shortage import Shortage, capturing, shortage
from vramdoc.diagnose.verdict import Confidence, Severity, Verdict
from vramdoc.evidence.anatomy import failed_request
from vramdoc.evidence.case import Case

ID = "graph-private-pool"


def judge(case: Case) -> Verdict:
    """Confirm when idle private pools, or graphs that the log shows being captured, hold what is lacking."""
    found = shortage(case)
    if found is None:
        bare = unnumbered(case)
        return (
            _in_capture(bare) if bare is not None and capturing(case) else without_figures(ID, case)
        )
    if ID in found.sufficient:
        return _confirmed(case, found)
    sums = found.balance
    if sums.private_pools:
        return ruled_out(
            ID,
            f"Private pools hold {size(sums.private_pools)} idle, which is not material here.",
            figures(case, found, "short"),
        )
    if case.crash is not None and "graph-capture" in case.crash.signs and found.leading is None:
        return undecided(
            ID,
            "CUDA graphs were being captured; the message has no figure for their pools.",
            ["an allocator snapshot, or the same run with graphs off (enforce_eager)"],
        )
    return ruled_out(ID, "No private pool holds idle memory.")


def _in_capture(bare: Incident) -> Verdict:
    return confirmed(
        ID,
        "Memory ran out while a CUDA graph was being captured; the text prints no figures. What an engine leaves free beside its KV cache was too little for the graphs.",
        [quote(bare)],
        confidence=Confidence.MEDIUM,
    )


def _confirmed(case: Case, found: Shortage) -> Verdict:
    sums, leads = found.balance, found.leading == ID
    held = found.sufficient[ID]
    sign = case.crash.signs.get("graph-capture") if case.crash is not None else None
    by_log = held != sums.private_pools
    if by_log and held == sums.requested:
        summary = (
            f"The request of {size(sums.requested)} that failed belongs to a CUDA graph capture: {size(sums.free)} were left for the graphs, live tensors (with an "
            f"engine's KV cache among them) hold {size(sums.live)} of {size(sums.total)}."
        )
    elif by_log:
        summary = (
            f"The failure came while CUDA graphs were captured: {size(sums.non_pytorch)} of this process are outside PyTorch's pool (graphs, context, "
            "communication). The message has no private-pool figure; the capture is known from the log."
        )
    else:
        summary = (
            f"Private pools (CUDA graphs, torch.cuda.MemPool) keep {size(sums.private_pools)} idle that no other request may use; torch counts them as allocated, "
            f"so live tensors hold {size(sums.live)}."
        )
    return confirmed(
        ID,
        summary + _times(case) if by_log else summary,
        (
            *figures(case, found, "reserved", "live", "non_pytorch", "short"),
            *([cite(sign, "capture")] if by_log and sign else []),
        ),
        confidence=Confidence.MEDIUM,
        severity=Severity.ERROR if leads else Severity.WARNING,
        explains=found.sufficient[ID],
        notes=remarks(case, found) if leads else (),
    )


def _times(case: Case) -> str:
    """When the capture began and when it failed, where the log has times of day."""
    log = case.crash
    began = log.signs.get("graph-capture-time") if log is not None else None
    failure = failed_request(log) if log is not None else None
    if began is None or failure is None or failure.clock is None:
        return ""
    return f" The capture began at {began.text} and failed at {failure.clock}."


RULE = Rule(
    id=ID,
    title="CUDA graphs keep memory to themselves",
    meaning=(
        "A captured CUDA graph owns the addresses that its kernels use: free blocks of its private pool stay reserved for it, and the instantiated graph takes further memory outside the pool. "
        "Any torch.cuda.MemPool behaves alike."
    ),
    how_decided=(
        '"allocated in private pools" (torch 2.4+) is the sum of the pools\' idle blocks, and part of the allocated figure. Confirmed when it would have covered the shortage and is at least 2 % of the pool. '
        "Where the log shows a capture under way, the excess of this process outside the pool is attributed to it."
    ),
    not_to_confuse_with='fragmentation. A small private-pool clause in the message proves nothing; on MPS "private pool" is a Metal pool.',
    remedies=(
        "RX-EAGER",
        "RX-GRAPHPOOL",
        "RX-ENGINEROOM",
    ),
    references=("c10/cuda/CUDACachingAllocator.cpp: PrivatePool, PR#124673", "pytorch#121932"),
    judge=judge,
)
