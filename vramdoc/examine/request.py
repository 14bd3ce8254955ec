"""What was asked: the options of one ``diagnose`` as plain data. It knows neither Typer nor how the answer is found."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, BinaryIO

from vramdoc.examine.target import Target


def _silent(_sentence: str) -> None:
    """Say nothing."""


@dataclass(frozen=True, slots=True, kw_only=True)
class DiagnoseRequest:
    """One question."""

    target: Target
    argv: tuple[str, ...] = ()
    """The program to run, when the target is a command of the person's own."""
    gpu: str | None = None
    """As the person wrote it; None means a real device where there is one, else the default virtual one."""
    alloc_conf: str = ""
    workload: Mapping[str, Any] = field(default_factory=dict)
    """Fields of WorkloadSpec that the person set; the others follow from the model."""
    foreign_bytes: int = 0
    recordings: Path = Path(".vramdoc")
    trials: int = 4
    """How many candidate changes are tried at most; 0 tries none."""
    command: str = ""
    """The command line that reproduces the report, with the target's own name only."""
    stdin: BinaryIO | None = None
    progress: Callable[[str], None] = _silent
