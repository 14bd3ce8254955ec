"""Manifest to JSON and back. Reading is strict about types and tolerant of keys that a later version added.

It knows no file; ``recording`` does. The fields and their types are read off the dataclasses, so there is one list of them.
"""

from __future__ import annotations

import json
import types
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, fields, is_dataclass
from enum import Enum
from functools import cache
from typing import Any, TypeVar, Union, get_args, get_origin, get_type_hints

from vramdoc.errors import UnreadableInput
from vramdoc.record.holders import Survey
from vramdoc.record.manifest import Manifest, Observation, Phase

_Record = TypeVar("_Record")


def to_json(record: Manifest | Phase | Observation | Survey) -> dict[str, Any]:
    """Plain JSON values; ``extra`` of a manifest goes back to the top level, where it came from."""
    data = asdict(record)
    return {**data.pop("extra", {}), **data}


def dump_manifest(manifest: Manifest) -> bytes:
    """The manifest as UTF-8 JSON text, keys in the order of the dataclass."""
    return (json.dumps(to_json(manifest), indent=1, ensure_ascii=False) + "\n").encode(
        "utf-8", "backslashreplace"
    )


def load_manifest(text: bytes | str) -> Manifest:
    """Read what ``dump_manifest`` wrote, also by an older or newer version.

    Raises:
        UnreadableInput: the text is no JSON, or not a manifest.
    """
    try:
        data = json.loads(text)
    except (ValueError, RecursionError) as error:
        raise UnreadableInput(f"the manifest is not JSON ({error})") from error
    if not isinstance(data, dict):
        raise UnreadableInput("the manifest is not a JSON object")
    known = {name: data[name] for name in _plan(Manifest) if name in data and name != "extra"}
    extra = {key: value for key, value in data.items() if key not in known}
    return from_json(Manifest, {**known, "extra": extra})


def from_json(cls: type[_Record], data: Any) -> _Record:
    """Build the frozen dataclass ``cls`` from plain JSON values; unknown keys are ignored.

    Raises:
        UnreadableInput: a key is missing or has a value of another type.
    """
    record: _Record = _read_record(cls, data, cls.__name__.lower())
    return record


def _read_record(cls: Any, data: Any, where: str) -> Any:
    if not isinstance(data, dict):
        raise UnreadableInput(f"{where} in the manifest is not an object")
    values = {
        name: read(data[name], f"{where}.{name}")
        for name, read in _plan(cls).items()
        if name in data
    }
    try:
        return cls(**values)
    except TypeError as error:
        raise UnreadableInput(f"{where} in the manifest is incomplete ({error})") from error


_Reader = Callable[[Any, str], Any]


@cache
def _plan(cls: Any) -> Mapping[str, _Reader]:
    """How to read each field of a dataclass."""
    hints = get_type_hints(cls)
    return {field.name: _reader(hints[field.name]) for field in fields(cls)}


def _reader(hint: Any) -> _Reader:
    """The reader for one annotation; the kinds that ``manifest`` uses, and no more."""
    origin = get_origin(hint)
    if origin in {Union, types.UnionType}:
        kinds = [kind for kind in get_args(hint) if kind is not types.NoneType]
        return _read_optional(_reader(kinds[0])) if len(kinds) == 1 else _read_number
    if origin is not None and issubclass(origin, Mapping):
        return _read_mapping(_reader(get_args(hint)[1]))
    if origin is not None and issubclass(origin, Sequence):
        return _read_sequence(_reader(get_args(hint)[0]))
    if hint is Any:
        return lambda value, _where: value
    if is_dataclass(hint):
        return lambda value, where: _read_record(hint, value, where)
    if issubclass(hint, Enum):
        return _read_enum(hint)
    return _read_plain(hint)


def _read_optional(item: _Reader) -> _Reader:
    return lambda value, where: None if value is None else item(value, where)


def _read_number(value: Any, where: str) -> int | float | str:
    if not isinstance(value, int | float | str):
        raise UnreadableInput(f"{where} in the manifest should be a number or text")
    return value


def _read_mapping(item: _Reader) -> _Reader:
    def read(value: Any, where: str) -> dict[str, Any]:
        if not isinstance(value, dict):
            raise UnreadableInput(f"{where} in the manifest is not an object")
        return {key: item(entry, f"{where}.{key}") for key, entry in value.items()}

    return read


def _read_sequence(item: _Reader) -> _Reader:
    def read(value: Any, where: str) -> tuple[Any, ...]:
        if not isinstance(value, list):
            raise UnreadableInput(f"{where} in the manifest is not a list")
        return tuple(item(entry, f"{where}[{index}]") for index, entry in enumerate(value))

    return read


def _read_enum(kind: type[Enum]) -> _Reader:
    def read(value: Any, where: str) -> Enum:
        try:
            return kind(value)
        except ValueError:
            raise UnreadableInput(f"{where} in the manifest: {value!r} is not known here") from None

    return read


def _read_plain(kind: type[Any]) -> _Reader:
    def read(value: Any, where: str) -> Any:
        if kind is float and isinstance(value, int) and not isinstance(value, bool):
            return float(value)
        if not isinstance(value, kind) or (isinstance(value, bool) and kind is not bool):
            raise UnreadableInput(f"{where} in the manifest should be {kind.__name__}")
        return value

    return read
