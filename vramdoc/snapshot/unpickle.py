"""Pickle bytes to plain containers. Whatever else a pickle asks for is refused by name, and nothing is ever called.

It does not know what a snapshot looks like (``schema``) nor where the bytes come from (``reader``).
"""

from __future__ import annotations

import contextlib
import gc
import pickle
from collections.abc import Iterator
from typing import Any, BinaryIO, NoReturn

from vramdoc.errors import UnreadableInput

REFUSED_HINT = "an allocator snapshot holds only plain values; do not load this file with pickle"


class _PlainUnpickler(pickle.Unpickler):
    """Builds dict, list, tuple, set, str, bytes, int, float, bool and None; the C unpickler does the work.

    Without a class, a global or a persistent id no opcode can reach anything callable: REDUCE, NEWOBJ, INST, OBJ and
    BUILD then fail on a plain value.
    """

    def find_class(self, module_name: str, global_name: str, /) -> NoReturn:
        raise UnreadableInput(
            f"the pickle asks to import {module_name!r}.{global_name!r}, which is refused",
            REFUSED_HINT,
        )

    def persistent_load(self, pid: object, /) -> NoReturn:
        raise UnreadableInput(
            f"the pickle refers to an outside object ({type(pid).__name__}), which is refused",
            REFUSED_HINT,
        )


@contextlib.contextmanager
def collector_off() -> Iterator[None]:
    """Keep the cyclic collector from walking a million young dictionaries again and again."""
    was_enabled = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if was_enabled:
            gc.enable()


def unpickle(stream: BinaryIO) -> Any:
    """Read one pickle of protocol 0 to 5 from ``stream`` as plain containers.

    Args:
        stream: buffered and seekable or not; read no further than the pickle's end.

    Raises:
        UnreadableInput: truncated, damaged, or asking for anything but plain values.
    """
    with collector_off():
        try:
            return _PlainUnpickler(stream).load()
        except UnreadableInput:
            raise
        except (EOFError, pickle.UnpicklingError) as error:
            raise UnreadableInput(
                f"the pickle is truncated or damaged: {_one_line(error)}"
            ) from error
        except MemoryError as error:
            raise UnreadableInput("the pickle declares more data than memory can hold") from error
        except (
            ArithmeticError, AttributeError, LookupError, RecursionError, TypeError, ValueError,
        ) as error:  # fmt: skip
            # What the C unpickler lets through for opcodes that make no sense together.
            raise UnreadableInput(f"the pickle is damaged: {_one_line(error)}") from error


def _one_line(error: BaseException) -> str:
    """The first line of an error's text, printable and short: it may quote the file's own bytes."""
    first = (str(error).splitlines() or [type(error).__name__])[0]
    return "".join(character if character.isprintable() else "?" for character in first[:120])
