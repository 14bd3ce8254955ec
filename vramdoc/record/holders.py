"""Holders: what keeps device memory alive in a recorded process, by the names that its code has for it. Plain records.

It knows no object and no way to look for one (``record.inside.survey`` does), and judges nothing.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from enum import Enum


class HolderKind(str, Enum):
    """How tensors are held. The first that applies counts: what a running function uses is not held by a traceback too."""

    FRAME = "frame"
    """A local variable of a function that is running, or of a module's body: in use."""
    CONTAINER = "container"
    """Something that outlives a call: a list, a dict, an object's attribute, a closure; also one that a running function fills."""
    GRAPH = "graph"
    """Such a container of tensors with their autograd graph, which keeps what was saved for a backward pass."""
    TRACEBACK = "traceback"
    """Only the frames of a call that has ended, kept by an exception's traceback."""
    ERROR = "error"
    """Only the traceback of the exception that is ending the program."""
    CYCLE = "cycle"
    """Nothing but a reference cycle: ``gc.collect()`` would return it."""
    INTERPRETER = "interpreter"
    """Python objects that native code holds: alive, and by whom cannot be told."""

    def __str__(self) -> str:
        return self.value


@dataclass(frozen=True, slots=True, kw_only=True)
class Holder:
    """One name and the storages that it keeps. Each storage is counted once, for the first holder that was found."""

    kind: HolderKind
    what: str
    """``list `losses```, ``variable `activations```, ``dict `Trainer.history```; for a cycle the types that form it."""
    owner: str = ""
    """Where the name belongs: ``train()``, ``module train``; empty where it has none."""
    via: str = ""
    """For a traceback: the exception and what keeps it (``RuntimeError in list `errors```)."""
    file: str = ""
    line: int = 0
    """Of the statement that fills the container, where the source shows one; else where its function stands or stood."""
    function: str = ""
    bytes: int
    """Of the storages, as torch counts them, without rounding."""
    graph_bytes: int = 0
    """Part of ``bytes`` that only the autograd graphs of its tensors keep."""
    count: int
    """Storages."""
    graphs: int = 0
    """Tensors among them whose autograd graph none of the others continues: the steps of a list of losses, not the layers of one pass."""
    blocks: Sequence[int] = ()
    """Device addresses of the storages, the first ``MOST_BLOCKS``."""


MOST_BLOCKS = 20_000
"""Addresses kept a holder; at 16 characters each that is 320 KB of JSON."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Collected:
    """What one ``gc.collect()`` returned at the end of the program: torch's allocated bytes before and after it."""

    before_bytes: int
    after_bytes: int
    found_bytes: int
    """Of the storages that the survey had called unreachable: still there before the collection."""
    returned_bytes: int
    """Of those: gone after it."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Survey:
    """Everything that held device memory at one moment."""

    moment: str
    """``"oom"`` (before the exception unwound), ``"end"`` or ``"signal"``."""
    device: int
    allocated_bytes: int
    """torch's own count at that moment; what no holder explains is held by native code alone, as a running backward pass is."""
    holders: Sequence[Holder] = ()
    collected: Collected | None = None
    objects: int = 0
    """Python objects that were looked at."""
    seconds: float = 0.0
    missing: str = ""
    """Why the holders are not all there; empty when they are."""
