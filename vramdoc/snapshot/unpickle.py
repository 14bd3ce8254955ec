"""Pickle bytes to plain containers. Whatever else a pickle asks for is refused by name, and nothing is ever called.

The compiled scanner reads what PyTorch writes; this reads where there is no compiler, and the oldest protocols. It does not know
what a snapshot looks like (``schema``) nor where the bytes come from (``reader``).
"""

from __future__ import annotations

import contextlib
import gc
import io
import mmap
import pickle
import struct
from collections.abc import Iterator
from typing import Any, BinaryIO, NoReturn, cast

from vramdoc.errors import UnreadableInput
from vramdoc.snapshot.opcodes import check_opcodes

REFUSED_HINT = "an allocator snapshot holds only plain values; do not load this file with pickle"


class _Refusals:
    """Builds dict, list, tuple, set, str, bytes, int, float, bool and None.

    Without a class, a global or a persistent id no opcode can reach anything callable: REDUCE, NEWOBJ, INST, OBJ and
    BUILD then fail on a plain value.
    """

    def find_class(self, module_name: str, global_name: str, /) -> NoReturn:
        raise UnreadableInput(
            f"the pickle asks to import '{_short(module_name)}'.'{_short(global_name)}', which is refused",
            REFUSED_HINT,
        )

    def persistent_load(self, pid: object, /) -> NoReturn:
        raise UnreadableInput(
            f"the pickle refers to an outside object ({type(pid).__name__}), which is refused",
            REFUSED_HINT,
        )


class _BinaryUnpickler(_Refusals, pickle.Unpickler):
    """The C unpickler, for protocols 2 to 5."""


class _TextUnpickler(_Refusals, pickle._Unpickler):  # noqa: SLF001 - the public name is the C one
    """Python's own code, for protocols 0 and 1. It is slow; its memo is a dictionary, so that an index costs only its entry."""


def unpickle(stream: BinaryIO) -> Any:
    """Read one pickle of protocol 0 to 5 from the start of ``stream`` as plain containers.

    Raises:
        UnreadableInput: truncated, damaged, or asking for anything but plain values.
    """
    with collector_off(), _as_unreadable():
        own, is_binary = _checked(stream)
        return (_BinaryUnpickler if is_binary else _TextUnpickler)(own).load()


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


def _checked(stream: BinaryIO) -> tuple[BinaryIO, bool]:
    """A stream at the start of the same pickle, its opcodes looked over when they are binary, and whether they are.

    A file is looked at without a copy of it; an inflated or a decoded one is read up.
    """
    try:
        number = stream.fileno()
    except OSError:
        content = stream.read()
        own = cast("BinaryIO", io.BufferedReader(io.BytesIO(content)))
        return own, _is_binary(content)
    with mmap.mmap(number, 0, access=mmap.ACCESS_READ) as mapped:
        return stream, _is_binary(mapped)


def _is_binary(content: bytes | mmap.mmap) -> bool:
    is_binary = content[:1] == b"\x80"
    if is_binary:
        check_opcodes(content)
    return is_binary


@contextlib.contextmanager
def _as_unreadable() -> Iterator[None]:
    """Turn whatever the unpicklers raise for a bad file into the one error that says so."""
    try:
        yield
    except UnreadableInput:
        raise
    except (EOFError, pickle.UnpicklingError, struct.error) as error:
        raise UnreadableInput(f"the pickle is truncated or damaged: {_one_line(error)}") from error
    except MemoryError as error:
        raise UnreadableInput("the pickle declares more data than memory can hold") from error
    except (
        ArithmeticError, AttributeError, LookupError, RecursionError, TypeError, ValueError,
    ) as error:  # fmt: skip
        # What they let through for opcodes that make no sense together.
        raise UnreadableInput(f"the pickle is damaged: {_one_line(error)}") from error


def _one_line(error: BaseException) -> str:
    """The first line of an error's text: it may quote the file's own bytes."""
    return _short((str(error).splitlines() or [type(error).__name__])[0])


def _short(text: str) -> str:
    """The beginning of a foreign text, printable."""
    return "".join(character if character.isprintable() else "?" for character in text[:100])
