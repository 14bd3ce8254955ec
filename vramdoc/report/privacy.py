"""Takes out of a Report what says who, where or with what secret, once, before any renderer sees it.

Kept: the project's own part of a path, versions, sizes, allocator settings. Cut: home folders and all above the project, user and
host names, addresses, tokens, prompts, and every environment variable that is not on the allow-list. It works on text by its form:
a secret that looks like an ordinary word cannot be told from one, which is why reports show so little foreign text to begin with.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import fields, is_dataclass, replace
from enum import Enum
from pathlib import Path
from typing import Any, TypeVar

from vramdoc.report.contents import Report
from vramdoc.report.printable import printable
from vramdoc.report.scrub import HIDDEN, Scrubber, is_allowed_variable, is_secret_name
from vramdoc.snapshot.model import Frame, Trace

_Value = TypeVar("_Value")


def redact(
    report: Report,
    *,
    include_private: bool = False,
    names: Collection[str] = (),
) -> Report:
    """Return ``report`` with every string in it printable and, unless ``include_private``, free of private parts.

    Args:
        report: as the pipeline composed it.
        include_private: keep names, paths and values; control characters still go.
        names: user and host names of this machine, where the caller knows them.
    """
    if include_private:
        return _Walk(printable).of(report)
    scrubber = Scrubber(texts=_texts(report), names=names)
    return _Walk(lambda text: scrubber(printable(text)), is_private=True).of(report)


class _Walk:
    """Rebuilds nested records with every string mapped; equal stack frames are mapped once."""

    def __init__(self, clean: Callable[[str], str], *, is_private: bool = False) -> None:
        self._clean = clean
        self._is_private = is_private
        self._frames: dict[Frame, Frame] = {}
        self._known: dict[str, str] = {}

    def of(self, value: _Value) -> _Value:
        """The same value with every string in it cleaned."""
        return self._any(value)  # type: ignore[no-any-return]  # same type by construction

    def _any(self, value: Any) -> Any:
        if isinstance(value, Enum) or value is None or isinstance(value, (bool, int, float)):
            return value
        if isinstance(value, str):
            return self.text(value)
        if isinstance(value, Path):
            return Path(self.text(value.name))
        if isinstance(value, Frame):
            return self.frame(value)
        if isinstance(value, Trace):
            return replace(value, stacks=_Stacks(value.stacks, self))
        if is_dataclass(value) and not isinstance(value, type):
            return replace(
                value, **{f.name: self._any(getattr(value, f.name)) for f in fields(value)}
            )
        if isinstance(value, Mapping):
            return self._mapping(value)
        if isinstance(value, (list, tuple)):
            return type(value)(self._any(part) for part in value)
        return value

    def text(self, text: str) -> str:
        """One string, cleaned."""
        if text not in self._known:
            self._known[text] = self._clean(text)
        return self._known[text]

    def frame(self, frame: Frame) -> Frame:
        """One stack frame, cleaned."""
        if frame not in self._frames:
            self._frames[frame] = Frame(
                self.text(frame.filename), frame.line, self.text(frame.name)
            )
        return self._frames[frame]

    def _mapping(self, mapping: Mapping[Any, Any]) -> dict[Any, Any]:
        return {
            self._any(key): HIDDEN if self._hides(key, value) else self._any(value)
            for key, value in mapping.items()
        }

    def _hides(self, key: object, value: object) -> bool:
        if (
            not self._is_private
            or not isinstance(key, str)
            or not isinstance(value, (str, list, tuple))
        ):
            return False
        return is_secret_name(key) or not is_allowed_variable(key)


class _Stacks(Sequence[tuple[Frame, ...]]):
    """The stacks of a trace, cleaned when looked at: a million events may have many, and a report shows few."""

    def __init__(self, stacks: Sequence[tuple[Frame, ...]], walk: _Walk) -> None:
        self._stacks = stacks
        self._walk = walk

    def __len__(self) -> int:
        return len(self._stacks)

    def __getitem__(self, index: Any) -> Any:
        if isinstance(index, slice):
            return [self[i] for i in range(*index.indices(len(self)))]
        return tuple(self._walk.frame(frame) for frame in self._stacks[index])


def _texts(report: Report) -> Iterator[str]:
    """Every string of the report and of the block stacks, for the scrubber to learn names and project folders from."""
    yield from _strings(report)
    case = report.case
    for snapshot in (case.snapshot, case.oom_snapshot) if case else ():
        for trace in snapshot.traces if snapshot else ():
            for stack in trace.stacks:
                yield from (frame.filename for frame in stack)


def _strings(value: Any) -> Iterator[str]:
    if isinstance(value, Enum) or value is None:
        return
    if isinstance(value, str):
        yield value
    elif isinstance(value, Trace):
        return
    elif is_dataclass(value) and not isinstance(value, type):
        for field in fields(value):
            yield from _strings(getattr(value, field.name))
    elif isinstance(value, Mapping):
        for key, part in value.items():
            yield from _strings(key)
            yield from _strings(part)
    elif isinstance(value, (list, tuple)):
        for part in value:
            yield from _strings(part)
