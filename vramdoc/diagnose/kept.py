"""Memory that is kept, with what keeps it: verdicts from the holders that a recorded process found, and from sessions that ended.

The rule ``leak`` asks here, and so does the choice of its remedies (``keepers``).
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING

from vramdoc.diagnose.answers import confirmed
from vramdoc.diagnose.failing import size
from vramdoc.diagnose.growing import growth_by_marks
from vramdoc.diagnose.shortage import shortage
from vramdoc.diagnose.verdict import Confidence, Severity, Verdict
from vramdoc.evidence.case import Case
from vramdoc.evidence.source import source_of
from vramdoc.facts import Fact
from vramdoc.record.holders import HolderKind

if TYPE_CHECKING:  # they load numpy, which judging a crash text does not need
    from vramdoc.evidence.attribution import Site
    from vramdoc.evidence.holders import Held

MATTERS = 0.05
"""Part of live memory below which nothing is called a leak, even where it is more than the request lacked: what a collection has not
reached yet is as much at any moment, and the request after the next would fail without it."""
FEWEST_GRAPHS = 4
"""As for steps (``evidence.growth``): fewer may be the parts of one pass."""
MOST = 0.5
"""Part of live memory that graphs in one container must be, where no growth was measured: a list of one pass's outputs (a loss for each
head) looks the same, and stays below what the model and the rest of that pass hold."""
_SHOWN = 3
"""Holders cited."""
_LOST = {
    HolderKind.CYCLE: ("kept_by_cycles", "reference cycles, which Python's collector had not reached"),
    HolderKind.TRACEBACK: ("kept_by_tracebacks", "the tracebacks of exceptions"),
}  # fmt: skip
"""What no running function needs, by what alone keeps it."""


def keepers(case: Case) -> tuple[Held, ...]:
    """The holders that the verdict is about, most important first; empty where none is, or nobody looked."""
    if lost := _lost(case):
        return lost
    if graphs := _graphs(case):
        return graphs
    if case.outlived is not None and case.outlived.sites:
        return keeper_of(case, case.outlived.sites[0].site)
    if growth := growth_by_marks(case):
        return keeper_of(case, growth.sites[0].site)
    return ()


def keeper_of(case: Case, site: Site) -> tuple[Held, ...]:
    """The holder of most of what one line allocated; empty where that is a running function's own variable."""
    held = () if case.holders is None else case.holders.held
    top = max(held, key=lambda entry: entry.bytes_at(site), default=None)
    if top is None or not top.bytes_at(site):
        return ()
    is_in_use = top.kind is HolderKind.FRAME and not top.holder.graph_bytes
    return () if is_in_use or top.kind is HolderKind.ERROR else (top,)


def outstanding(case: Case) -> tuple[Held, ...]:
    """Holders of a good part of live memory that are worth a word, largest first: not what a running function has in use."""
    if case.holders is None:
        return ()
    least = MATTERS * case.holders.live_bytes
    kinds = set(HolderKind) - {HolderKind.FRAME, HolderKind.ERROR, HolderKind.INTERPRETER}
    return tuple(held for held in case.holders.of(*kinds) if held.bytes >= least)


def phrase(held: Held) -> str:
    """One holder for people: ``list `losses` in train() (train.py:15), with 29 autograd graphs``."""
    holder = held.holder
    name = f"{holder.what} in {holder.owner}" if holder.owner else holder.what
    if held.place is not None:
        name += f" ({held.place.path}:{held.place.line})"
    if held.kind is HolderKind.TRACEBACK:
        return f"{name}, by the traceback of {holder.via or 'a call that has ended'}"
    if held.kind is HolderKind.CYCLE:
        return f"{name}: {holder.via}" if holder.via else f"{name}, in a reference cycle"
    if held.kind is HolderKind.INTERPRETER:
        return f"{name}, which native code holds"
    if holder.graph_bytes:
        graphs = "its autograd graph" if holder.graphs == 1 else f"{holder.graphs} autograd graphs"
        return f"{name}, with {graphs}"
    return name


def kept_facts(name: str, held: Iterable[Held], case: Case) -> list[Fact]:
    """What the largest holders keep, each with who it is and which line allocated it."""
    return [
        Fact(name, entry.bytes, "bytes", source_of(case.manifest), _where(entry))
        for entry in tuple(held)[:_SHOWN]
    ]


def lost(rule_id: str, case: Case) -> Verdict | None:
    """Memory that only cycles or tracebacks keep, where it is a good part of what is live; an error where the request lacked less."""
    held = _lost(case)
    if not held or case.holders is None:
        return None
    kind = held[0].kind
    name, keeper = _LOST[kind]
    total, lacking = _total(held), _lacking(case)
    is_enough = lacking is not None and total >= lacking
    others = f" ({size(held[0].bytes)} of it), and {len(held) - 1} more" if len(held) > 1 else ""
    return confirmed(
        rule_id,
        f"{size(total)} of {size(case.holders.live_bytes)} live bytes are kept by nothing but {keeper}: {phrase(held[0])}{others}."
        + (f" That is more than the {size(lacking)} that the request lacked." if is_enough else ""),
        [*kept_facts(name, held, case), *_collected(case, kind)],
        severity=Severity.ERROR if is_enough else Severity.WARNING,
        explains=total,
    )  # fmt: skip


def graphs(rule_id: str, case: Case) -> Verdict | None:
    """A container of tensors with their autograd graphs that is large enough to explain the failure."""
    held = _graphs(case)
    if not held:
        return None
    top = held[0]
    return confirmed(
        rule_id,
        f"{size(top.bytes)} are kept by {phrase(top)}: more than the {size(_lacking(case))} that the request lacked. Each graph keeps what its pass saved for a backward pass.",
        kept_facts("kept_by_graphs", held, case),
        confidence=Confidence.MEDIUM,
        explains=top.bytes,
        notes=[
            "If one backward pass over all of them is meant, this is that pass's own memory: run it for each of them instead, which adds up the same gradients."
        ],
    )


def outlived(rule_id: str, case: Case) -> Verdict | None:
    """Sessions that ended and whose memory did not."""
    found = case.outlived
    if found is None or not found.sites:
        return None
    lacking = _lacking(case)
    is_enough = lacking is not None and found.live_bytes >= lacking
    if found.live_bytes < MATTERS * _live(case):
        return None
    top = found.sites[0]
    keeper = keeper_of(case, top.site)
    held_by = f" It is kept by {phrase(keeper[0])}." if keeper else ""
    return confirmed(
        rule_id,
        f"Each {found.name} that ends leaves {size(found.per_session_bytes)} behind: {found.kept_sessions} of {found.sessions} did, {size(found.live_bytes)} together, allocated at {top.site}.{held_by}",
        [
            Fact(
                "outlived_sessions",
                found.live_bytes,
                "bytes",
                source_of(case.manifest),
                f"allocated inside a {found.name}, still live two more ended ones later; {top.count} allocations at {top.site}",
            ),
            *kept_facts("kept_by_holder", keeper, case),
        ],
        confidence=Confidence.MEDIUM,
        severity=Severity.ERROR if is_enough else Severity.WARNING,
        explains=found.live_bytes,
        notes=[f"If a cache across every {found.name} is meant, it needs a bound."],
    )


def _lost(case: Case) -> tuple[Held, ...]:
    """Of the two kinds the one that keeps more, where that much matters.

    At a program's end a cycle is the rule, not a leak: what the last function used is garbage from then on.
    """
    if case.holders is None:
        return ()
    kinds = [HolderKind.TRACEBACK] if case.holders.moment == "end" else list(_LOST)
    held = max((case.holders.of(kind) for kind in kinds), key=_total)
    return held if held and _total(held) >= MATTERS * case.holders.live_bytes else ()


def _graphs(case: Case) -> tuple[Held, ...]:
    lacking = _lacking(case)
    if case.holders is None or lacking is None:
        return ()
    least = max(lacking, MOST * case.holders.live_bytes)
    return tuple(
        entry
        for entry in case.holders.of(HolderKind.GRAPH)
        if entry.holder.graphs >= FEWEST_GRAPHS and entry.bytes >= least
    )


def _total(held: Sequence[Held]) -> int:
    return sum(entry.bytes for entry in held)


def _lacking(case: Case) -> int | None:
    """Bytes that the failed request lacked; None where none failed."""
    found = shortage(case)
    return None if found is None else max(found.lacking, 1)


def _live(case: Case) -> int:
    return 0 if case.usage is None else case.usage.end.active


def _where(entry: Held) -> str:
    line = f"; allocated at {entry.sites[0].site}" if entry.sites else ""
    return f"{phrase(entry)}{line}"


def _collected(case: Case, kind: HolderKind) -> list[Fact]:
    """What a collection at the end of the program returned of the cycles' memory: the measure of the claim."""
    done = None if case.holders is None else case.holders.collected
    if done is None or kind is not HolderKind.CYCLE or not done.found_bytes:
        return []
    where = f"gc.collect() at the end of the program, of the {size(done.found_bytes)} still there; allocated {size(done.before_bytes)} before, {size(done.after_bytes)} after"
    source = source_of(case.manifest)
    return [Fact("returned_by_collect", done.returned_bytes, "bytes", source, where)]
