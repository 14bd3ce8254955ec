"""vramdoc: why did this GPU run out of memory, and which change provably fixes it?

Importing the package costs nothing: it holds the version and no import of torch, numpy, pandas, matplotlib or NVML.

``vramdoc.mark("phase")`` and ``with vramdoc.recording("name")`` are for a program of your own; see ``record.marks``.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from vramdoc.record.marks import mark, recording

__all__ = ["__version__", "mark", "recording"]

__version__ = "0.1.0"


def __getattr__(name: str) -> Any:
    if name in {"mark", "recording"}:
        from vramdoc.record import marks  # noqa: PLC0415 # only for a program that names its phases

        globals().update(mark=marks.mark, recording=marks.recording)
        return globals()[name]
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
