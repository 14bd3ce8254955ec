"""Guard: bytes of device tensors that a dtype conversion made, by line of code.

It sees the conversions that Python code asks for (``to``, ``float``, ``half`` ...). What autocast or an operator converts within
itself it does not see.
"""

from __future__ import annotations

import functools
import sys
from collections import defaultdict
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from types import CodeType
from typing import Any

import torch

from vramdoc.record.inside.user_line import calling_frame, is_library

_CONVERSIONS = ("to", "type", "float", "double", "half", "bfloat16")
_MOST_LINES = 100
Observe = Callable[..., None]

_Place = tuple[int, int, torch.dtype, torch.dtype]
"""A code object's id and an instruction in it, not yet a line: naming the line, or hashing the code, takes longer than a
conversion."""


@dataclass(slots=True)
class _Tally:
    code: CodeType
    bytes: int = 0
    count: int = 0


def install() -> Callable[[Observe], None]:
    """Watch the conversions; returns what reports the lines with the most bytes, at the end."""
    tallies: dict[_Place, _Tally] = {}
    for method in _CONVERSIONS:
        _watch(method, tallies)

    def report(observe: Observe) -> None:
        for (file, line, source, target), (size, count) in _by_line(tallies)[:_MOST_LINES]:
            observe(
                "cast", file=file, line=line, source=source, target=target, bytes=size, count=count
            )

    return report


def _watch(method: str, tallies: dict[_Place, _Tally]) -> None:
    original = getattr(torch.Tensor, method)
    tensor = torch.Tensor

    @functools.wraps(original)
    def watched(self: torch.Tensor, *arguments: Any, **options: Any) -> Any:
        result = original(self, *arguments, **options)
        if result is self or not isinstance(result, tensor):
            return result
        source, target = self.dtype, result.dtype
        if source is not target and result.is_cuda:
            frame = sys._getframe(1)  # noqa: SLF001 # the documented way to a frame
            code = frame.f_code
            if is_library(code):
                frame = calling_frame(frame) or frame
                code = frame.f_code
            place = id(code), frame.f_lasti, source, target
            tally = tallies.get(place)
            if tally is None:
                tally = tallies[place] = _Tally(code)
            tally.bytes += result.nbytes
            tally.count += 1
        return result

    setattr(torch.Tensor, method, watched)


_Line = tuple[str, int, str, str]


def _by_line(tallies: Mapping[_Place, _Tally]) -> list[tuple[_Line, tuple[int, int]]]:
    """Bytes and counts by file, line, source and target type, most bytes first."""
    lines: defaultdict[_Line, tuple[int, int]] = defaultdict(lambda: (0, 0))
    for (_, instruction, source, target), tally in tallies.items():
        code = tally.code
        line = (code.co_filename, _line_of(code, instruction), _name(source), _name(target))
        lines[line] = lines[line][0] + tally.bytes, lines[line][1] + tally.count
    return sorted(lines.items(), key=lambda item: (-item[1][0], item[0]))


def _line_of(code: CodeType, instruction: int) -> int:
    return next(
        (line or 0 for start, end, line in code.co_lines() if start <= instruction < end),
        code.co_firstlineno,
    )


def _name(dtype: torch.dtype) -> str:
    return str(dtype).removeprefix("torch.")
