"""Guard: bytes of device tensors that a dtype conversion made, by line of code.

It sees the conversions that Python code asks for (``to``, ``float``, ``half`` ...). What autocast or an operator converts within
itself it does not see.
"""

from __future__ import annotations

import functools
import sys
from collections import defaultdict
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch

from vramdoc.record.inside.user_line import calling_frame

_CONVERSIONS = ("to", "type", "float", "double", "half", "bfloat16")
_MOST_LINES = 100
Observe = Callable[..., None]


@dataclass(slots=True)
class _Tally:
    bytes: int = 0
    count: int = 0


def install() -> Callable[[Observe], None]:
    """Watch the conversions; returns what reports the lines with the most bytes, at the end."""
    tallies: defaultdict[tuple[str, int, Any, Any], _Tally] = defaultdict(_Tally)
    for method in _CONVERSIONS:
        _watch(method, tallies)

    def report(observe: Observe) -> None:
        largest = sorted(tallies.items(), key=lambda item: (-item[1].bytes, item[0][:2]))
        for (file, line, source, target), tally in largest[:_MOST_LINES]:
            observe(
                "cast",
                file=file,
                line=line,
                source=str(source).removeprefix("torch."),
                target=str(target).removeprefix("torch."),
                bytes=tally.bytes,
                count=tally.count,
            )

    return report


def _watch(method: str, tallies: defaultdict[tuple[str, int, Any, Any], _Tally]) -> None:
    original = getattr(torch.Tensor, method)

    @functools.wraps(original)
    def watched(self: torch.Tensor, *arguments: Any, **options: Any) -> Any:
        result = original(self, *arguments, **options)
        if (
            result is not self
            and isinstance(result, torch.Tensor)
            and result.dtype != self.dtype
            and result.is_cuda
        ):
            frame = calling_frame(sys._getframe(1))  # noqa: SLF001 # the documented way to a frame
            if frame is not None:
                tally = tallies[frame.f_code.co_filename, frame.f_lineno, self.dtype, result.dtype]
                tally.bytes += result.numel() * result.element_size()
                tally.count += 1
        return result

    setattr(torch.Tensor, method, watched)
