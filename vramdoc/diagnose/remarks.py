"""Sentences about a failed request that belong to whichever cause leads.

What is outside the pool, who a listed process is, whether torch's own hint applies: each is a remark on evidence, no verdict.
"""

from __future__ import annotations

from collections.abc import Iterator

from vramdoc.crashlog.incident import CrashLog, Incident
from vramdoc.diagnose.moment import moment
from vramdoc.diagnose.shortage import (
    DRIVER_SLACK,
    ROUNDING_SLACK,
    STRONG_SHARE,
    Shortage,
    Situation,
    normal_non_pytorch,
)
from vramdoc.evidence.anatomy import NUMBERED
from vramdoc.evidence.case import Case
from vramdoc.units import format_bytes

LATE_ITERATION = 100
"""After so many steps every tensor that a step needs has been allocated many times over."""


def remarks(case: Case, found: Shortage) -> tuple[str, ...]:
    """Everything worth saying, in reading order."""
    return tuple(_all(case, found))


def _all(case: Case, found: Shortage) -> Iterator[str]:
    log = case.crash
    if log is not None:
        yield from _several(log)
    yield from hint(case, found)
    yield from _backend(case, found)
    if log is not None:
        yield from moment(log)
        yield from _time(log)
    yield from _outside(found)
    yield from _private_pools(found)
    if case.oom is not None and "cached" in case.oom.extra:
        yield (
            'In this old wording "cached" is what is idle and excludes allocated memory (PR #13751); from torch 1.4 on '
            '"reserved in total" includes it.'
        )


def hint(case: Case, found: Shortage) -> Iterator[str]:
    """One sentence when the hint in torch's own message does not apply here."""
    text = case.oom.text if case.oom is not None else ""
    named = next(
        (
            option
            for option in ("expandable_segments", "max_split_size_mb", "empty_cache")
            if option in text
        ),
        None,
    )
    if named is None or found.leading == "fragmentation":
        if named == "expandable_segments" and case.oom is not None and case.oom.expandable_on:
            yield "torch's hint does not apply: expandable_segments is on already."
        elif (
            named == "expandable_segments"
            and case.crash is not None
            and case.crash.platform == "windows"
        ):
            yield "torch's hint does not apply on Windows builds up to torch 2.13: expandable_segments is ignored there."
        return
    idle = found.balance.unallocated
    yield f"torch's hint ({named}) does not apply: {_why_not(named, idle, found)}."


def _why_not(named: str, idle: int | None, found: Shortage) -> str:
    if found.situation is Situation.LIMITED:
        return "a memory limit refuses, not the layout"
    if named == "empty_cache" or not idle:
        return f"there is no idle cache to return ({format_bytes(idle or 0)})"
    share = f"{format_bytes(idle)}, {100 * found.idle_share:.1f} % of what is reserved"
    if idle < found.balance.requested:
        return f"the idle cache ({share}) is smaller than the request of {format_bytes(found.balance.requested)}"
    if found.situation is Situation.FULL and found.idle_share < ROUNDING_SLACK:
        return f"the idle cache ({share}) is rounding slack on a full device; it can rescue this one request at best"
    return f"the idle cache ({share}) is not what is lacking"


def _outside(found: Shortage) -> Iterator[str]:
    """Who holds what lies outside the pool: one sentence on this process, and what others hold in the same breath."""
    sums = found.balance
    if sums.process is not None and sums.non_pytorch is not None:
        own = format_bytes(max(0, sums.non_pytorch))
        said = (
            f"The listed process with {format_bytes(sums.process)} is this one, which a container (pid namespace) hides: it fits the "
            f"pool's {format_bytes(sums.reserved or 0)} plus {own} outside it"
            if sums.process_is_matched
            else f"About {own} of this process is outside PyTorch's allocator (CUDA context, libraries, communication)"
        )
        yield f"{said}{_others(found)}."
    elif found.leading != "foreign-process" and (sums.outside or 0) > DRIVER_SLACK:
        enough = (
            f" If other programs hold {format_bytes(sums.short or 0)} of it, closing them is enough: see nvidia-smi."
            if found.may_be_others and (sums.short or 0) > 0
            else ""
        )
        yield (
            f"About {format_bytes(sums.outside or 0)} is outside this allocator (CUDA context, desktop, other processes); "
            f"this message lists no processes.{enough}"
        )


def _others(found: Shortage) -> str:
    """What other processes hold, where they are not the cause themselves."""
    if found.leading == "foreign-process":
        return ""
    sums = found.balance
    rest = max(0, sums.unexplained or 0) + (sums.others or 0)
    if rest <= max(sums.rounding, DRIVER_SLACK):
        return f"; other processes hold almost nothing ({format_bytes(rest)}, within rounding)"
    return f"; other processes or the desktop hold {format_bytes(rest)}"


def _backend(case: Case, found: Shortage) -> Iterator[str]:
    """What the cudaMallocAsync backend's text means, and what its limit says."""
    oom, sums = case.oom, found.balance
    if oom is None or "backend" not in oom.extra or oom.extra["backend"].value != "async":
        return
    yield (
        "The backend is cudaMallocAsync, not the native caching allocator: max_split_size_mb and expandable_segments do not apply to it, "
        "and its message has no figure for idle cache."
    )
    if (
        sums.allowed is not None
        and sums.total is not None
        and sums.allowed >= sums.total - sums.rounding
    ):
        yield "The fraction limit equals the device limit (1.0): it is not the cause."
    elif sums.allowed is None:
        yield "The printed limit of 17179869184.00 GiB is 2^64 bytes: no limit is set."


def _several(log: CrashLog) -> Iterator[str]:
    failures = log.all(*NUMBERED)
    if len(failures) < 2:
        return
    places = ", ".join(_place(failure) for failure in failures[:8])
    same = (
        len(
            {
                failure.readings["requested"].value
                for failure in failures
                if "requested" in failure.readings
            }
        )
        == 1
    )
    yield (
        f"{len(failures)} failed requests stand in this text{' with the same size' if same else ''}, each with its own figures: {places}. "
        "What is judged here is the first."
    )


def _place(failure: Incident) -> str:
    device, free = failure.readings.get("device"), failure.readings.get("free")
    parts = [
        f"rank {failure.rank}" if failure.rank is not None else "",
        f"{free.text} free" if free else "",
    ]
    shown = ", ".join(part for part in parts if part)
    return (f"GPU {device.value}" if device else "a GPU") + (f" ({shown})" if shown else "")


def _time(log: CrashLog) -> Iterator[str]:
    if log.newest_first:
        yield "This log prints its newest line first; it was read in the order of its timestamps."
    counts = [o.readings["iteration"].value for o in log.observations if o.kind == "progress"]
    reached = max((count for count in counts if isinstance(count, int)), default=0)
    if reached >= LATE_ITERATION:
        yield f"It failed at iteration {reached}, after many that fitted: no start-up capacity limit."


def _private_pools(found: Shortage) -> Iterator[str]:
    sums = found.balance
    if sums.private_pools and found.leading != "graph-private-pool":
        yield (
            f"The private-pool figure ({format_bytes(sums.private_pools)}) is part of the allocated figure already and is not the cause."
        )


def strength(found: Shortage) -> str:
    """How plain fragmentation is, in a word."""
    return "plain" if found.idle_share >= STRONG_SHARE else "weak"


def usual_outside(found: Shortage) -> int:
    """Bytes outside the pool that need no explanation on this device."""
    return normal_non_pytorch(found.balance.total)
