"""What the program's own code calls an object: variable, attribute, container, the function it belongs to, the line that fills it.

Names are read out of frames, modules and dictionaries without running anything of the program: types are asked for what ``type``
and ``object`` know, never the object itself. A *path* is a chain of objects, each held by the one before, and begins at a name.
"""

from __future__ import annotations

import inspect
import linecache
import re
import sys
from collections import deque
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from types import CodeType, FrameType, FunctionType, ModuleType
from typing import Any

import torch

from vramdoc.record.inside.user_line import MAIN_FILE, is_recorders

_COLLECTIONS = (list, tuple, dict, set, frozenset, deque)
FILLS = (
    r"(?:\.(?:append|appendleft|extend|insert|add|update|setdefault)\(|\[[^\]]*\]\s*=[^=]|\s*\+=)"
)
"""How a container gets another entry, behind its name."""
ASSIGNS = r"\s*=\s*(?!None\b)[^=\s]"
"""How an attribute gets a value worth keeping."""
_OURS_ALONE = 3
"""References to a frame's copy of its variables that nobody else has: the frame's, ours, and the one of asking."""
_HEAP_TYPE = 1 << 9
"""Py_TPFLAGS_HEAPTYPE (Include/object.h)."""


@dataclass(frozen=True, slots=True)
class Place:
    """Where a name stands in source."""

    owner: str = ""
    """``train()``, ``module train``."""
    file: str = ""
    line: int = 0
    function: str = ""


@dataclass(frozen=True, slots=True)
class Root:
    """A name that the program can use at this moment: a variable of a running function, or a module's namespace."""

    name: str
    """Empty for a namespace: its entries have the names."""
    place: Place
    code: CodeType | None = None
    is_running: bool = True
    """Whether the function, or the module's body, is being executed."""

    @property
    def is_installed(self) -> bool:
        """Whether it is a name of an installed package or of Python, not of the program's own."""
        file = self.place.file
        return not file or "-packages" in file or file.startswith((sys.prefix, sys.base_prefix))


def type_name(value: object) -> str:
    """The name of an object's type, without asking its metaclass."""
    return str(type.__dict__["__name__"].__get__(type(value)))


def is_a(value: object, base: type) -> bool:
    """``isinstance`` by the type's bases alone: no ``__class__`` and no ``__instancecheck__`` of the program is called."""
    return is_kind_of(type(value), base)


def is_kind_of(kind: type, base: type) -> bool:
    """``issubclass``, in the same way."""
    return base in type.__dict__["__mro__"].__get__(kind)


def is_of_program(kind: type) -> bool:
    """Whether a class was made by a ``class`` statement, which gives it Python's heap-type flag."""
    return bool(kind.__flags__ & _HEAP_TYPE) and not is_kind_of(kind, type)


def running_frames() -> list[FrameType]:
    """The frames of every thread that are being executed, innermost first, but for the recorder's own.

    A frame of ours in the list, or in a variable that outlives this call, would be a cycle that keeps all its callers' variables.
    """
    frames = []
    frame: FrameType | None
    for frame in sys._current_frames().values():  # noqa: SLF001 # the documented way to the other threads'
        while frame is not None:
            if not is_recorders(frame.f_code):
                frames.append(frame)
            frame = frame.f_back  # noqa: PLW2901 # no second variable for a frame
    return frames


def variables_of(frame: FrameType) -> list[tuple[str, Any]]:
    """A function's variables. Up to Python 3.12 reading them leaves a copy in the frame, which would keep them alive.

    It is emptied, unless the program has it too (from ``locals()``).
    """
    variables = frame.f_locals
    found = list(variables.items())
    if (
        type(variables) is dict
        and _is_function(frame)
        and sys.getrefcount(variables) <= _OURS_ALONE
    ):
        variables.clear()
    return found


def frame_roots(frames: Sequence[FrameType]) -> Iterator[tuple[Root, Any]]:
    """Each variable of the running functions; a module's body has its variables in the module."""
    for frame in filter(_is_function, frames):
        place = place_of_frame(frame, frame.f_lineno)
        for name, value in variables_of(frame):
            yield Root(name, place, frame.f_code), value


def module_roots(frames: Sequence[FrameType]) -> list[tuple[Root, ModuleType, dict[str, Any]]]:
    """Each module with its namespace."""
    bodies = {id(frame.f_globals) for frame in frames if not _is_function(frame)}
    known: dict[int, tuple[Root, ModuleType, dict[str, Any]]] = {}
    for name, module in list(sys.modules.items()):
        namespace = _own_dict(module) if is_a(module, ModuleType) else None
        if namespace is not None:
            is_main = name == "__main__"
            file = namespace.get("__file__", MAIN_FILE if is_main else "")
            owner = "the main module" if is_main else f"module {name}"
            place = Place(owner, file if type(file) is str else "", 0, "<module>")
            root = Root("", place, is_running=id(namespace) in bodies)
            known.setdefault(id(namespace), (root, module, namespace))
    return list(known.values())


def place_of_frame(frame: FrameType, line: int) -> Place:
    """A frame's function, at a line of it."""
    code = frame.f_code
    owner = f"{code.co_name}()" if _is_function(frame) else "the module's body"
    return Place(owner, code.co_filename, line, code.co_name)


def collection_in(path: Sequence[Any]) -> int | None:
    """Position of the first thing in a path that holds many: a container, or the outermost ``torch.nn.Module`` of a parameter.

    A namespace and an instance's own dictionary are no containers in this sense: they are how code spells a name.
    """
    outermost: int | None = None
    module: Any = None
    for position, value in enumerate(path[:-1]):
        if is_a(value, torch.nn.Module):
            outermost, module = position if outermost is None else outermost, value
        elif _is_collection(value) and not _is_spelling(path, position):
            own = _own_dict(module) or {}
            if value is own.get("_modules"):
                continue
            of_module = any(value is own.get(name) for name in ("_parameters", "_buffers"))
            return outermost if of_module else position
    return None


def spell(root: Root, path: Sequence[Any]) -> str:
    """How the program's code names the last object of a path: ``losses``, ``Trainer.history``, ``caches[...].k``, ``model.rnn.hidden``."""
    text = type_name(path[0]) if root.name == "self" else root.name
    for position, value in enumerate(path[1:]):
        if not _is_spelling(path, position + 1):  # it is named together with what comes behind it
            is_submodule = text.endswith("._modules")
            text = text.removesuffix("._modules") + _member(path, position, value, is_submodule)
    return text.removeprefix(".")


def filling_line(name: str, place: Place, code: CodeType | None, verb: str = FILLS) -> Place:
    """``place`` at the first line that does ``verb`` to ``name``; unchanged where the source shows none.

    A function's variable is looked for in the function, a module's or an object's name in the whole file.
    """
    last = name.rsplit(".", 1)[-1]
    if not re.fullmatch(r"\w+", last) or not place.file:
        return place
    lines = linecache.getlines(place.file)
    first, end = 0, len(lines)
    if code is not None and last == name:
        numbers = [line for _, _, line in code.co_lines() if line]
        first, end = min(numbers, default=1) - 1, max(numbers, default=end)
    pattern = re.compile(rf"{'[.]' if last != name else ''}\b{last}{verb}")
    for number in range(first, min(end, len(lines))):
        if pattern.search(lines[number]):
            function = place.function if code is not None else _function_around(lines, number)
            return replace(place, line=number + 1, function=function)
    return place


def _function_around(lines: Sequence[str], number: int) -> str:
    """The function that a line stands in, by indentation."""
    indent = len(lines[number]) - len(lines[number].lstrip())
    for line in reversed(lines[:number]):
        found = re.match(r"(\s*)(?:async\s+)?def\s+(\w+)", line)
        if found and len(found[1]) < indent:
            return found[2]
    return "<module>"


def place_of_class(value: object) -> Place:
    """The file of an object's class, by its first method."""
    for member in list(type.__dict__["__dict__"].__get__(type(value)).values()):
        if type(member) is FunctionType:
            code = member.__code__
            return Place("", code.co_filename, code.co_firstlineno, type_name(value))
    return Place()


def _member(path: Sequence[Any], position: int, value: Any, is_submodule: bool) -> str:  # noqa: FBT001 # private
    """What one object of a path calls the next: ``.name``, ``[...]``; empty where it has no name for it.

    A dictionary's keys are data, which may name a person; only ``torch.nn.Module`` spells attributes by them.
    """
    holder = path[position]
    if _is_collection(holder) and not _is_spelling(path, position):
        return f".{_key_of(holder, value)}" if is_submodule else "[...]"
    if type(holder) is tuple:
        return f".{_variable_of(path[position - 1], holder, value)}"
    own = holder if type(holder) is dict else _own_dict(holder)
    key = _key_of(own, value) if own is not None else ""
    return f".{key}" if key else ""


def _is_spelling(path: Sequence[Any], position: int) -> bool:
    """Whether the object there is how code spells a name.

    That is the own dictionary of the instance, class or module before it, and the closure or the defaults of the function before it.
    """
    if position == 0:
        return False
    value, holder = path[position], path[position - 1]
    if type(value) is tuple:
        return type(holder) is FunctionType
    return type(value) is dict and (is_a(holder, type) or _own_dict(holder) is value)


def _variable_of(function: FunctionType, values: tuple[Any, ...], value: Any) -> str:
    """The name of a closure's variable, or of an argument with a default."""
    code = function.__code__
    names = code.co_freevars
    if values is not function.__closure__:
        names = code.co_varnames[code.co_argcount - len(values) : code.co_argcount]
    return next((name for name, entry in zip(names, values, strict=False) if entry is value), "")


def _is_collection(value: object) -> bool:
    return any(is_a(value, kind) for kind in _COLLECTIONS)


def _own_dict(value: Any) -> dict[str, Any] | None:
    try:
        own = object.__getattribute__(value, "__dict__")
    except AttributeError:
        return None
    return own if type(own) is dict else None


def _key_of(holder: dict[Any, Any], value: Any) -> str:
    return next(
        (key for key, entry in list(dict.items(holder)) if entry is value and type(key) is str), ""
    )


def _is_function(frame: FrameType) -> bool:
    return bool(frame.f_code.co_flags & inspect.CO_OPTIMIZED)
