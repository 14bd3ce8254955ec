"""vramdoc: why did this GPU run out of memory, and which change provably fixes it?

Importing the package costs nothing: it holds the version and no import of torch, numpy, pandas, matplotlib or NVML.
``mark`` and ``recording`` are for a program of your own.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from contextlib import AbstractContextManager
    from pathlib import Path

__all__ = ["__version__", "mark", "recording"]

__version__ = "0.1.0"


def mark(name: str, **detail: int | float | str) -> None:
    """Say that a phase of the program begins here; it lasts until the next mark. Nothing, when not recording."""
    _marks().mark(name, **detail)


def recording(name: str, root: Path | str = ".vramdoc") -> AbstractContextManager[Path | None]:
    """Record a block: ``with vramdoc.recording("warm-up") as folder: ...``. Under ``vramdoc record`` it is one phase of that."""
    block: AbstractContextManager[Path | None] = _marks().recording(name, root)
    return block


def _marks() -> Any:
    """By name, because this module is below ``record`` in the layers."""
    return importlib.import_module("vramdoc.record.marks")
