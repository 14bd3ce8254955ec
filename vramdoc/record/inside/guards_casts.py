"""Guard: bytes of device tensors that a dtype conversion made, by line of code.

It counts the first ones of a run (``MOST_CONVERSIONS``), and only those that Python code asks for (``to``, ``float``, ``half`` ...).
What autocast or an operator converts within itself it does not see.
"""

from __future__ import annotations

import functools
import sys
from collections import defaultdict
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from types import CodeType, FrameType
from typing import Any

import torch

from vramdoc.record.inside.user_line import calling_frame, is_library

_CONVERSIONS = ("to", "type", "float", "double", "half", "bfloat16")
MOST_CONVERSIONS = 1_000
"""Counted, then the guard takes itself off. A conversion costs 4 to 5 µs more under it (docs/benchmarks.md), which a decoder would feel
at every token; so it costs a run 5 ms at most. The lines that convert show themselves in the first steps: an RMS-normed decoder of 32
layers converts 130 times a pass.
"""

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
    watch = _Watch()
    for method in _CONVERSIONS:
        watch.put_on(method)

    def report(observe: Observe) -> None:
        for (file, line, source, target), (size, count) in _by_line(watch.tallies)[:_MOST_LINES]:
            observe(
                "cast",
                file=file,
                line=line,
                source=source,
                target=target,
                bytes=size,
                count=count,
                complete=watch.left > 0,
            )

    return report


class _Watch:
    """The watched methods, and what they have counted."""

    def __init__(self) -> None:
        self.tallies: dict[_Place, _Tally] = {}
        self.left = MOST_CONVERSIONS
        self._watched: dict[str, Any] = {}

    def put_on(self, method: str) -> None:
        original = getattr(torch.Tensor, method)
        tensor = torch.Tensor

        @functools.wraps(original)
        def watched(self_: torch.Tensor, *arguments: Any, **options: Any) -> Any:
            result = original(self_, *arguments, **options)
            if result is self_ or not isinstance(result, tensor):
                return result
            source, target = self_.dtype, result.dtype
            if source is not target and result.is_cuda and self.left:
                self._count(sys._getframe(1), source, target, result.nbytes)  # noqa: SLF001 # the documented way to a frame
            return result

        self._watched[method] = watched
        setattr(torch.Tensor, method, watched)

    def _count(self, frame: FrameType, source: torch.dtype, target: torch.dtype, size: int) -> None:
        code = frame.f_code
        if is_library(code):
            frame = calling_frame(frame) or frame
            code = frame.f_code
        place = id(code), frame.f_lasti, source, target
        tally = self.tallies.get(place)
        if tally is None:
            tally = self.tallies[place] = _Tally(code)
        tally.bytes += size
        tally.count += 1
        self.left -= 1
        if not self.left:
            self._take_off()

    def _take_off(self) -> None:
        """Leave the methods as they were found: inherited. One that somebody else has wrapped since stays."""
        for method, watched in self._watched.items():
            if vars(torch.Tensor).get(method) is watched:
                delattr(torch.Tensor, method)


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
