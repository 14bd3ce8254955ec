"""Two recordings or snapshots side by side: which target each is, read and measured, then compared."""

from __future__ import annotations

from typing import TYPE_CHECKING

from vramdoc.errors import UsageError
from vramdoc.examine.target import Target, recognise

if TYPE_CHECKING:
    from vramdoc.evidence.case import Case
    from vramdoc.evidence.diff import Diff


def difference(before: str, after: str) -> Diff:
    """Compare two targets that hold an allocator snapshot.

    Raises:
        VramdocError: one of them cannot be read, or is neither a recording nor a snapshot.
    """
    from vramdoc.evidence.diff import compare

    return compare(measured_case(recognise(before)), measured_case(recognise(after)))


def measured_case(target: Target) -> Case:
    """Read a recording or a snapshot.

    Raises:
        UsageError: the target is something else.
    """
    from vramdoc.evidence.build import case_from_recording, case_from_snapshot
    from vramdoc.record.recording import open_recording

    if target.kind == "snapshot" and target.path is not None:
        return case_from_snapshot(target.path)
    if target.kind == "recording" and target.path is not None:
        return case_from_recording(open_recording(target.path))
    raise UsageError(
        f"{target.name} is a {target.kind}, which holds no allocator snapshot",
        "give two recordings or snapshots; `vramdoc record -- python train.py` makes one",
    )
