"""What a crash text says: incidents, each number with the span of text it was read from.

It knows what was printed, not what it means; ``evidence`` and ``diagnose`` do.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field


@dataclass(frozen=True, slots=True, kw_only=True)
class Reading:
    """One value read from text. Sizes are bytes; ``tolerance`` is half a unit in the last printed digit."""

    name: str
    value: int | str
    start: int
    """Offset of the first character in the decoded text."""
    end: int
    text: str
    tolerance: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class Incident:
    """One failure (or warning) found in a text."""

    kind: str
    """A kind of the tables in ``crashlog.oom`` (``cuda-oom``, ``async-oom``, ``mps-oom``, ``xpu-oom``) or
    ``crashlog.wordings`` (``bare-oom``, ``cublas``, ``device-assert``, ``resize``, ``host-oom``, ``conf-error`` ...)."""
    wording: str
    """Which known wording matched, for example ``torch-2.4..2.9``."""
    readings: Mapping[str, Reading]
    start: int
    end: int
    text: str
    """The matched text itself."""
    rank: int | None = None
    repeated: int = 1
    clock: str | None = None
    """Time of day printed on the same line before it, as ``03:44:03``."""


@dataclass(frozen=True, slots=True, kw_only=True)
class CrashLog:
    """All that was recognised in one text, oldest first."""

    incidents: tuple[Incident, ...]
    encoding: str
    characters: int
    torch_version: str | None = None
    platform: str | None = None
    """``linux``, ``windows``, ``wsl``, ``macos`` where the text shows it."""
    alloc_conf: str | None = None
    """An allocator setting visible in the text."""
    frames: tuple[tuple[str, int, str], ...] = field(default=())
    """(file, line, function) of the last Python traceback, outermost first."""
    source_lines: tuple[str, ...] = field(default=())
    """The source lines printed with ``frames``."""
    signs: Mapping[str, Reading] = field(default_factory=dict)
    """Circumstances that are no failure: ``dataloader-worker``, ``vllm``, ``backward``, ``graph-capture`` ..."""
    observations: tuple[Incident, ...] = ()
    """Figures beside the failure: rows of GPU tables, host memory in use, KV-cache blocks (``crashlog.observations``)."""
    code: tuple[str, ...] = ()
    """Further program lines that the text shows: notebook cells, ``>>>`` prompts."""
    newest_first: bool = False
    """The console printed its newest line on top; incidents are nevertheless oldest first."""
    torch_at_least: str | None = None
    """The oldest release that prints this wording, where no version is stated."""
    torch_at_most: str | None = None

    def first(self, *kinds: str) -> Incident | None:
        """The earliest incident of one of ``kinds``."""
        return next((incident for incident in self.incidents if incident.kind in kinds), None)

    def all(self, *kinds: str) -> tuple[Incident, ...]:
        """Every incident of one of ``kinds``, oldest first."""
        return tuple(incident for incident in self.incidents if incident.kind in kinds)
