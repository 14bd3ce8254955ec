"""foreign-process: someone else holds the device."""

from __future__ import annotations

from vramdoc.crashlog.incident import Incident
from vramdoc.diagnose.answers import cite, confirmed, derived, quote, ruled_out, undecided
from vramdoc.diagnose.failing import (
    figures,
    size,
    unnumbered,
    where,
    without_figures,
)
from vramdoc.diagnose.remarks import remarks
from vramdoc.diagnose.rule import Rule
from vramdoc.diagnose.shortage import (
    ROUNDING_SLACK,
    Shortage,
    Situation,
    normal_non_pytorch,
    shortage,
)
from vramdoc.diagnose.vendors import vendor
from vramdoc.diagnose.verdict import Confidence, Severity, Verdict
from vramdoc.evidence.case import Case
from vramdoc.evidence.siblings import sibling_ranks

ID = "foreign-process"
NEARLY_ALL = 0.90
"""Share of a device in use from which a new context and a small model no longer find room."""


def judge(case: Case) -> Verdict:
    """Confirm when what others hold would have made room."""
    found = shortage(case)
    if found is None:
        return _engine_budget(case) or _gpu_table(case) or without_figures(ID, case)
    if ID in found.sufficient:
        return _confirmed(case, found)
    sums = found.balance
    if sums.others is None and sums.process is None and sums.unexplained is None:
        return undecided(
            ID,
            "The message does not say what others hold.",
            [f"which processes hold the device ({vendor(case).lister})"],
        )
    if found.situation is Situation.HAD_ROOM:
        return ruled_out(ID, f"{size(sums.free)} of the device were free.")
    if ID in found.contributing and sums.others is None:
        return undecided(
            ID,
            f"{size(sums.outside)} of the device are outside this pool, more than a context usually takes; the message does not say whose they are.",
            [f"a per-process list ({vendor(case).lister}) at the moment of the failure"],
            evidence=figures(case, found, "outside_this_allocator"),
            severity=Severity.WARNING,
        )
    other = sums.others or 0
    if (
        other >= max(sums.short or 0, ROUNDING_SLACK * (sums.total or 0))
        and found.situation is Situation.FULL
    ):
        return confirmed(
            ID,
            f"Other processes hold {size(other)} of {where(case)}: enough for this one request, and little of what fills the device.",
            figures(case, found, "other_processes", "short"),
            severity=Severity.WARNING,
            explains=other,
            notes=[_siblings(case)],
        )
    return ruled_out(
        ID,
        f"Other processes hold {size(other)}, too little to matter."
        if other
        else "No other process holds a noticeable part of the device.",
    )


def _confirmed(case: Case, found: Shortage) -> Verdict:
    sums, leads = found.balance, found.leading == ID
    known = sums.others is not None and sums.others >= found.sufficient[ID]
    from_table = known and sums.process is None and not (case.oom and case.oom.other_processes)
    from_table = from_table and case.manifest is None
    lists = "no processes" if sums.process is None and sums.others is None else "not whose they are"
    if not known:
        share = (sums.outside or 0) / (sums.total or 1)
        summary = (
            f"{size(sums.outside)} ({100 * share:.0f} %) of {where(case)} are outside this process's pool, which reserves only {size(sums.reserved)}: "
            f"another process, or another context, holds them. Look for the owner with {vendor(case).lister}; this message lists {lists}."
        )
    elif sums.process is not None and sums.process_is_matched:
        count = sums.other_count + 1
        summary = (
            f"{count} processes share {where(case)} and sum to {size(sums.process + (sums.others or 0))} of {size(sums.total)}. One of them is this one "
            f"(its pool of {size(sums.reserved)} fits {size(sums.process)}); the others hold {size(sums.others)}."
        )
    elif from_table:
        summary = (
            f"{sums.other_count} graphics processes of the table in this text hold {size(sums.others)} of {where(case)}'s {size(sums.total)}, which is more than the "
            f"{size(sums.short)} that the request lacked."
        )
    else:
        summary = f"Other processes hold {size(sums.others)} of {where(case)}'s {size(sums.total)}; this one's pool reserves {size(sums.reserved)}."
    return confirmed(
        ID,
        summary,
        figures(case, found, "reserved", "other_processes", "outside_this_allocator", "short"),
        confidence=Confidence.HIGH if known and not from_table else Confidence.MEDIUM,
        severity=Severity.ERROR if leads else Severity.WARNING,
        explains=found.sufficient[ID],
        notes=(*(_siblings(case),), *(remarks(case, found) if leads else ())),
    )


def _siblings(case: Case) -> str:
    if not (ranks := sibling_ranks(case)):
        return ""
    return (
        f"The {ranks} processes have neighbouring ids and similar sizes: sibling ranks of one job, all on {where(case)}. "
        "Give each rank its own device (torch.cuda.set_device(local_rank)) and start no more ranks than GPUs."
    )


def _engine_budget(case: Case) -> Verdict | None:
    """An engine (vLLM) compares free memory with its budget before it allocates anything."""
    if case.crash is None:
        return None
    if moved := case.crash.first("engine-profile"):
        return confirmed(
            ID,
            f"Free memory changed from {moved.readings['before'].text} to {moved.readings['after'].text} while the engine measured its own need: another process on this GPU allocates or frees at the same time.",
            [
                cite(moved.readings["before"], "free_before"),
                cite(moved.readings["after"], "free_after"),
            ],
            confidence=Confidence.MEDIUM,
            notes=["Start engines on one GPU one after the other, or give each its own GPU."],
        )
    incident = case.crash.first("engine-budget")
    if incident is None:
        return None
    free, total, wanted = (
        int(incident.readings[name].value) for name in ("free", "total", "requested")
    )
    used = total - free
    evidence = (
        *(cite(incident.readings[name]) for name in ("free", "total", "requested")),
        derived("used_before_start", used, "total - free"),
    )
    if used <= normal_non_pytorch(total):
        return ruled_out(
            ID,
            f"Only {size(used)} were in use before the engine started, what a context and a desktop take.",
            evidence,
        )
    return confirmed(
        ID,
        f"{size(free)} of {size(total)} were free at start: {size(used)} are held by something else, before this engine loaded anything. "
        f"It wants {incident.readings['utilization'].text} x {size(total)} = {size(wanted)}.",
        evidence,
        explains=used,
        notes=[
            (
                "First find the other process (another server, a left-over worker) with nvidia-smi. "
                f"Lowering the utilization to fit {size(free)} would leave the model what is left of that."
            )
        ],
    )


def _gpu_table(case: Case) -> Verdict | None:
    """An out-of-memory text without figures beside a table of the GPUs."""
    bare = unnumbered(case)
    rows = (
        [o for o in case.crash.observations if o.kind == "gpu-row"]
        if case.crash is not None
        else []
    )
    if bare is None or not rows or case.crash is None:
        return None
    chosen = case.crash.signs.get("visible-devices")
    index = int(chosen.text.split(",")[0] or 0) if chosen else 0
    row = next((r for r in rows if r.readings["device"].value == index), rows[0])
    used, total = int(row.readings["used"].value), int(row.readings["total"].value)
    if used < NEARLY_ALL * total:
        return undecided(
            ID,
            f"GPU {index} shows {size(used)} of {size(total)} in use.",
            ["the same table at the moment of the failure"],
            evidence=[quote(bare), quote(row, "gpu")],
        )
    return confirmed(
        ID,
        f"GPU {index} is full already ({size(used)} of {size(total)}), and the program uses it{'' if chosen else ' by default'}.",
        [
            quote(bare),
            cite(row.readings["used"], f"gpu_{index}_used"),
            cite(row.readings["total"], f"gpu_{index}_total"),
        ],
        confidence=Confidence.MEDIUM,
        explains=used,
        notes=_table_notes(case, rows),
    )


def _table_notes(case: Case, rows: list[Incident]) -> list[str]:
    observations = case.crash.observations if case.crash is not None else ()
    full = [
        r
        for r in rows
        if int(r.readings["used"].value) >= NEARLY_ALL * int(r.readings["total"].value)
    ]
    idle = [
        str(r.readings["device"].value)
        for r in rows
        if int(r.readings["used"].value) < (1 - NEARLY_ALL) * int(r.readings["total"].value)
    ]
    notes = []
    listed = any(o.kind == "gpu-process" for o in observations)
    if any(o.kind == "process-table" for o in observations) and not listed:
        unused = all(r.readings["utilization"].value == 0 for r in full)
        notes.append(
            f"The process table is empty although GPU {_names(full)} {'are' if len(full) > 1 else 'is'} full{' at 0 % utilisation' if unused else ''}: the memory belongs to "
            "processes that are invisible here (another container or user) or to a stale context."
        )
    if idle:
        notes.append(
            f"GPU {', '.join(idle)} {'are' if len(idle) > 1 else 'is'} nearly empty: choose with CUDA_VISIBLE_DEVICES={idle[0]}."
        )
    return notes


def _names(rows: list[Incident]) -> str:
    return " and ".join(str(row.readings["device"].value) for row in rows)


RULE = Rule(
    id=ID,
    title="Someone else holds the device",
    meaning=(
        "Other processes hold so much of the device that this one's request found no room: another job, a left-over worker, sibling ranks that all use GPU 0, a desktop, "
        "or processes of another container that are invisible here."
    ),
    how_decided=(
        "From the processes that the message lists (torch 2.1+, Linux), less this one: in a container the own pid is hidden, so the listed process that can hold the reserved bytes and is closest is "
        "taken as this one. Confirmed when the others' bytes would have covered the shortage and are at least 5 % of the device. Without a list: when total - free - reserved, less max(1.5 GiB, 5 %) for "
        "this process's own context, would have covered it and is at least a quarter of the device (one process's own share outside the pool was never seen above 15 %)."
    ),
    not_to_confuse_with="non-pytorch-memory (this process's own context, NCCL, graphs). An empty process table does not mean that nobody is there.",
    remedies=(
        "RX-SETDEV",
        "RX-OTHERPROC",
        "RX-ENGINEBUDGET",
    ),
    references=(
        "c10/cuda/CUDACachingAllocator.cpp: reportProcessMemoryInfo",
        "NVML nvmlDeviceGetComputeRunningProcesses",
    ),
    judge=judge,
)
