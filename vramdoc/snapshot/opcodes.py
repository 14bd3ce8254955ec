"""A look over a binary pickle's opcodes before Python's unpickler may run them, where no compiled scanner reads instead.

CPython's unpickler reserves what a file declares: a memo slot numbered four billion costs 64 GiB (gh-115952, mended in later
releases). So numbers and lengths are held against the file's own size first. It builds nothing and knows no snapshot.
"""

from __future__ import annotations

import mmap
import re

from vramdoc.errors import UnreadableInput

_COUNTED = {
    0x8C: 1, ord("U"): 1, ord("C"): 1, 0x8A: 1, ord("X"): 4, ord("T"): 4, ord("B"): 4, 0x8B: 4, 0x8D: 8, 0x8E: 8, 0x96: 8,
}  # fmt: skip
"""Opcodes followed by a length of so many bytes, and then by as many bytes."""
_FRAME = 0x95
"""A frame holds whole opcodes. Where one lies across its end, CPython's compiled unpickler reads wrong values and says nothing."""
_ENDS = frozenset(b".ciPQ\x93")
"""STOP, and opcodes at which Python's unpickler asks ``find_class`` or ``persistent_load``, which refuse."""


def check_opcodes(content: bytes | mmap.mmap) -> None:
    """Walk the opcodes of a pickle of protocol 2 to 5 up to its end.

    Runs of opcodes of fixed length are skipped by one regular expression, at some 100 MB a second; the rest are few, because
    texts are written once.

    Raises:
        UnreadableInput: a memo index, a length or an opcode that no snapshot has.
    """
    runs = _runs(len(content))
    at, stop = 0, len(content)
    while True:
        found = runs.match(content, at, stop)
        end = at if found is None else found.end()
        if end == stop < len(content):
            at, stop = end, len(content)  # the frame is over
        elif end >= len(content) or content[end] in _ENDS:
            return  # a pickle that just stops is the unpickler's to refuse
        elif end > at:
            at = end
        elif content[at] == _FRAME and stop == len(content):
            at, stop = at + 9, _behind_counted(content, at, stop, prefix=8)
        else:
            at = _behind_counted(content, at, stop, prefix=_COUNTED.get(content[at]))


def _behind_counted(content: bytes | mmap.mmap, at: int, stop: int, *, prefix: int | None) -> int:
    if prefix is None:
        raise UnreadableInput(
            f"the pickle is damaged: no snapshot has the opcode 0x{content[at]:02x} and what follows it"
        )
    start = at + 1 + prefix
    length = int.from_bytes(content[at + 1 : start], "little")
    if length > stop - start:
        raise UnreadableInput(
            f"the pickle is truncated or damaged: it declares a value of {length} bytes"
        )
    return start + length


def _runs(size: int) -> re.Pattern[bytes]:
    """Runs of opcodes of fixed length whose memo indices are not far above the file's ``size``."""
    if size < 1 << 16:
        index = rb"..\x00\x00"
    elif size < 1 << 24:
        index = rb"..[\x00-" + re.escape(bytes([size >> 16])) + rb"]\x00"
    else:
        index = rb"...[\x00-" + re.escape(bytes([min(size >> 24, 255)])) + rb"]"
    fixed = (
        rb"[(0-2N)\]}staeuld\x85-\x89\x94]+", rb"(?:j.{4})+", rb"(?:h.)+", rb"K.", rb"M..", rb"J.{4}", rb"q.", rb"r" + index,
        rb"\x8a(?:\x04.{4}|\x05.{5}|\x06.{6}|\x07.{7}|\x08.{8})", rb"G.{8}", rb"\x80[\x02-\x05]",
    )  # fmt: skip
    return re.compile(rb"(?:" + rb"|".join(fixed) + rb"){1,4096}", re.DOTALL)
