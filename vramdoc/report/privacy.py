"""Takes out of a Report what says who, where or with what secret, once, before any renderer sees it.

Kept: the project's own part of a path, versions, sizes, allocator settings. Cut: home folders and all above the project, user and
host names, addresses, tokens, prompts, and every environment variable that is not on the allow-list. It works on text by its form:
a secret that looks like an ordinary word cannot be told from one, which is why reports show so little foreign text to begin with.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from dataclasses import fields, is_dataclass, replace
from enum import Enum
from pathlib import Path
from typing import Any, TypeVar

from vramdoc.printable import printable
from vramdoc.report.scrub import HIDDEN, Scrubber, is_allowed_variable, is_secret_name
from vramdoc.snapshot.model import BlockInfo, Frame, StackTable

_Value = TypeVar("_Value")
_SEQUENCES = (list, tuple)
_NAMED = frozenset({"value", "before", "after"})
"""Fields of a record with a ``name`` that hold what it names: a fact, a circumstance of a difference."""


def redact(record: _Value, *, include_private: bool = False, names: Collection[str] = ()) -> _Value:
    """Return ``record`` with every string in it printable and, unless ``include_private``, free of private parts.

    Args:
        record: a Report as the pipeline composed it, or any other nested record that is to be rendered.
        include_private: keep names, paths and values; control characters still go.
        names: user and host names of this machine, where the caller knows them.
    """
    if include_private:
        return _Walk(printable).of(record)
    scrubber = Scrubber(texts=_texts(record), names=names)
    return _Walk(lambda text: scrubber(printable(text)), is_private=True).of(record)


class _Walk:
    """Rebuilds nested records with every string mapped; equal stack frames are mapped once."""

    def __init__(self, clean: Callable[[str], str], *, is_private: bool = False) -> None:
        self._clean = clean
        self._is_private = is_private
        self._frames: dict[Frame, Frame] = {}
        self._stacks: dict[int, tuple[Frame, ...]] = {}
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
        if isinstance(value, StackTable):
            return replace(value, frames=self._any(value.frames))
        if isinstance(value, BlockInfo):
            return replace(value, frames=self._stack(value.frames)) if value.frames else value
        if is_dataclass(value) and not isinstance(value, type):
            return replace(value, **self._fields(value))
        if isinstance(value, Mapping):
            return self._mapping(value)
        if isinstance(value, _SEQUENCES):
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

    def _stack(self, frames: tuple[Frame, ...]) -> tuple[Frame, ...]:
        """A block's stack; blocks of one stack share the tuple and keep sharing it."""
        if id(frames) not in self._stacks:
            self._stacks[id(frames)] = self._any(frames)
        return self._stacks[id(frames)]

    def _fields(self, record: Any) -> dict[str, Any]:
        """The fields of a record; what its ``name`` names counts as a mapping's entry would."""
        found = {f.name: getattr(record, f.name) for f in fields(record)}
        name = found.get("name")
        return {
            field: HIDDEN if field in _NAMED and self._hides(name, part) else self._any(part)
            for field, part in found.items()
        }

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


def _texts(value: Any) -> Iterator[str]:
    """Every string in nested records, for the scrubber to learn names and project folders from; each stack once."""
    seen: set[int] = set()
    pending = [value]
    while pending:
        part = pending.pop()
        if isinstance(part, (Enum, int, float)) or part is None:
            continue
        if isinstance(part, str):
            yield part
        elif id(part) not in seen and (
            isinstance(part, (Mapping, *_SEQUENCES)) or is_dataclass(part)
        ):
            seen.add(id(part))
            pending.extend(_parts(part))


def _parts(value: Any) -> Iterable[Any]:
    if isinstance(value, StackTable):
        return value.frames
    if isinstance(value, Mapping):
        return (*value.keys(), *value.values())
    if isinstance(value, _SEQUENCES):
        return value
    return (getattr(value, field.name) for field in fields(value))
