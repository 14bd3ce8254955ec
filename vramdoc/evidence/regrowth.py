"""Regrowth: tensors that one line builds anew, larger each time, while the one before is still live.

That is what ``torch.cat`` onto a kept tensor does: a KV cache by token, predictions by batch. It needs no marked steps, as each
copy names its predecessor by outliving its own birth. Which of both it is, and whether it is meant, ``diagnose`` decides.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from vramdoc.evidence.attribution import LIBRARY, OWN, Site, SiteNames, worth
from vramdoc.evidence.growth import FEWEST_STEPS, STEADY
from vramdoc.evidence.origin import rows_of, trace_of
from vramdoc.snapshot.model import StackTable

if TYPE_CHECKING:
    import numpy.typing as npt

    from vramdoc.evidence.callsites import SitedLifetimes
    from vramdoc.evidence.lifetimes import Lifetimes
    from vramdoc.snapshot.model import Snapshot, Trace

    Integers = npt.NDArray[np.int64]

SMALLEST = 1 << 20
"""Bytes below which a tensor that grows is no news: requests up to 1 MiB share small segments (kSmallSize)."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Regrowth:
    """One line whose tensors grow by being copied into larger ones."""

    line: Site
    """The innermost line outside torch, such as a cache's ``update``."""
    site: Site
    """The person's own line that leads there."""
    tensors: int
    """Tensors that grow side by side: keys and values of every layer, or one."""
    times: int
    """How often each was replaced, on average."""
    first_bytes: int
    """Requested for all tensors together when they were first made."""
    last_bytes: int
    """Of those live at the end."""
    per_step_bytes: int
    """Median rise of all tensors together."""
    was_refused: bool
    """Whether the request that failed was the next copy of this line."""


def regrowth(snapshot: Snapshot, sited: SitedLifetimes) -> tuple[Regrowth, ...]:
    """Every line whose tensors grow this way, the largest at the end first."""
    trace = trace_of(snapshot, sited.lifetimes.device)
    if not isinstance(trace.stacks, StackTable):
        return ()
    found = _grown(trace, trace.stacks, sited)
    return tuple(sorted(found, key=lambda r: (-r.last_bytes, r.line, r.site)))


def _grown(trace: Trace, stacks: StackTable, sited: SitedLifetimes) -> Iterator[Regrowth]:
    own = sited.lifetimes
    names = SiteNames(stacks.frames)
    refused = _refused_stack(trace)
    for rows in _by_stack(own):
        before, after = _replacements(own, rows)
        tensors = len(rows) - len(after)
        if len(after) < FEWEST_STEPS * tensors:
            continue
        live = rows[own.ended[rows] == own.events]
        last = int(own.requested[live].sum())
        if last < SMALLEST:
            continue
        made = rows[~np.isin(rows, after)]
        stack = int(own.stack[rows[0]])
        yield Regrowth(
            line=_line(stacks, stack, names) or sited.sites[sited.site[rows[0]]],
            site=sited.sites[sited.site[rows[0]]],
            tensors=tensors,
            times=len(after) // tensors,
            first_bytes=int(own.requested[made].sum()),
            last_bytes=last,
            per_step_bytes=tensors * int(np.median(own.requested[after] - own.requested[before])),
            was_refused=stack == refused,
        )


def _by_stack(own: Lifetimes) -> Iterator[npt.NDArray[np.intp]]:
    """Rows of each stack with enough of them, in the order of their starts."""
    known = np.flatnonzero((own.stack >= 0) & (own.started >= 0))
    order = known[np.argsort(own.stack[known], kind="stable")]
    starts = np.flatnonzero(np.diff(own.stack[order], prepend=-1))
    for rows in np.split(order, starts[1:]):
        if len(rows) > FEWEST_STEPS:
            yield rows


def _replacements(
    own: Lifetimes, rows: npt.NDArray[np.intp]
) -> tuple[npt.NDArray[np.intp], npt.NDArray[np.intp]]:
    """Rows that were replaced, and what replaced each: the latest of the same stack that was made before the old one went, if it is larger.

    Returns:
        Two arrays of one length, empty unless most of what went away was replaced like that.
    """
    started, ended = own.started[rows], own.ended[rows]
    gone = np.flatnonzero(ended < own.events)
    latest = np.searchsorted(started, ended[gone]) - 1
    larger = (latest > gone) & (own.requested[rows[latest]] > own.requested[rows[gone]])
    # A copy has one predecessor; that a whole batch of tensors went after the last was made is a backward pass.
    after, first = np.unique(latest[larger], return_index=True)
    before = gone[larger][first]
    if len(after) < STEADY * len(gone):
        return rows[:0], rows[:0]
    return rows[before], rows[after]


def _refused_stack(trace: Trace) -> int:
    """The stack of the last request that failed; -2, which no stack has, where none did."""
    failed = rows_of(trace, "oom")
    return int(trace.stack[failed[-1]]) if len(failed) else -2


def _line(stacks: StackTable, stack: int, names: SiteNames) -> Site | None:
    """The innermost frame of the person's own or an installed package's code."""
    begin, end = (int(stacks.ends[stack]), int(stacks.ends[stack + 1]))
    frames = (stacks.frames[i] for i in stacks.indices[begin:end])
    return next((names.site(frame) for frame in frames if worth(frame) in {OWN, LIBRARY}), None)
