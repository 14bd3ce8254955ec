"""Whether the processes on a device are the ranks of one job. It reads the message's list; it decides no cause."""

from __future__ import annotations

from vramdoc.evidence.case import Case

_APART = 4
"""Launchers start ranks in a row; a few process ids between them belong to helper processes of each."""


def sibling_ranks(case: Case) -> int:
    """How many ranks of one job the failed message lists on one device; 0 where they are no siblings or cannot be told.

    Similar sizes (within a factor of two) under neighbouring process ids are ranks, no strangers. Two may be a coincidence.
    """
    oom = case.oom
    if oom is None:
        return 0
    hidden = [oom.extra["hidden_process"]] if "hidden_process" in oom.extra else []
    listed = [*oom.other_processes, *hidden]
    numbers = sorted(
        int(name) for fact in listed if (name := fact.name.removeprefix("process_")).isdecimal()
    )
    sizes = sorted(fact.value for fact in listed if isinstance(fact.value, int))
    near = len(numbers) > 2 and numbers[-1] - numbers[0] <= _APART * len(numbers)
    return len(numbers) if near and sizes[0] >= sizes[-1] // 2 else 0
