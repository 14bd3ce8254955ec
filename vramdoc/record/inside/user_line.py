"""Which line of whose code: the frame worth naming, and the name that it has for a tensor."""

from __future__ import annotations

import linecache
import os
import sys
from collections.abc import Iterator, Mapping
from pathlib import Path
from types import CodeType, FrameType
from typing import Any

import torch

_LIBRARY = f"{Path(torch.__file__).parent}{os.sep}"
_OURS = f"{Path(__file__).parents[2]}{os.sep}record{os.sep}"

MAIN_FILE: str = getattr(sys.modules.get("__main__"), "__file__", None) or ""
"""The script that is being run; Python takes the name out of its module before it calls what is to be done at exit."""


def is_library(code: CodeType) -> bool:
    """Whether code is torch's or the recorder's."""
    return code.co_filename.startswith((_LIBRARY, _OURS))


def is_recorders(code: CodeType) -> bool:
    """Whether code is the recorder's own."""
    return code.co_filename.startswith(_OURS)


def calling_frame(start: FrameType | None = None) -> FrameType | None:
    """The innermost frame, from ``start`` (by default the caller's caller) outwards, that is neither torch's nor the recorder's."""
    frame = start or sys._getframe(2)  # noqa: SLF001 # the documented way to a frame
    here: FrameType | None = frame
    while here is not None and is_library(here.f_code):
        here = here.f_back
    return here


def place_of(frame: FrameType | None) -> dict[str, Any]:
    """``file``, ``line``, ``function`` and ``source`` (the line's text) of a frame; empty for none."""
    if frame is None:
        return {}
    code = frame.f_code
    return {
        "file": code.co_filename,
        "line": frame.f_lineno,
        "function": code.co_name,
        "source": linecache.getline(code.co_filename, frame.f_lineno).strip(),
    }


def name_in(frame: FrameType | None, wanted: object) -> str:
    """What the code of ``frame`` calls an object: ``cache``, ``self.k``, ``kv['layer.0']``, ``keys[3]``; empty when it has no name."""
    return next((name for name, value in named_values(frame) if value is wanted), "")


def named_values(frame: FrameType | None) -> Iterator[tuple[str, Any]]:
    """The locals and globals of a frame, then what they hold one level down."""
    if frame is None:
        return
    top = list({**frame.f_locals, **frame.f_globals, **frame.f_locals}.items())  # locals first
    yield from top
    for name, value in top:
        if not name.startswith("__"):
            yield from _members(name, value)


def _members(name: str, value: Any) -> Iterator[tuple[str, Any]]:
    """Held by a plain container or in an object's own attributes; nothing is called, so nothing can happen."""
    if isinstance(value, list | tuple):
        yield from ((f"{name}[{index}]", item) for index, item in enumerate(value[:10_000]))
    elif isinstance(value, dict):
        yield from ((f"{name}[{key!r}]", item) for key, item in list(value.items())[:10_000])
    else:
        attributes = getattr(value, "__dict__", None)
        if isinstance(attributes, Mapping) and not isinstance(value, type):
            yield from ((f"{name}.{key}", item) for key, item in list(attributes.items()))
