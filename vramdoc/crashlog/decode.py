"""Bytes to text: which encoding a console wrote, told from its bytes, and decoding that never fails and never needs it all at once.

It knows Unicode with and without a mark, and the code pages of Chinese, Japanese and western Windows. Every message that
matters is ASCII inside any of these, so a wrong guess costs a few unreadable letters of prose, never a number.
"""

from __future__ import annotations

import codecs
from collections.abc import Iterator
from typing import BinaryIO

SAMPLE_BYTES = 64 * 1024
_CHUNK_BYTES = 1 << 20
_MARKS = (
    (codecs.BOM_UTF32_LE, "utf-32-le"),
    (codecs.BOM_UTF32_BE, "utf-32-be"),
    (codecs.BOM_UTF8, "utf-8"),
    (codecs.BOM_UTF16_LE, "utf-16-le"),
    (codecs.BOM_UTF16_BE, "utf-16-be"),
)


def detect_encoding(sample: bytes) -> str:
    """Name the encoding of a text by its first bytes."""
    for mark, encoding in _MARKS:
        if sample.startswith(mark):
            return encoding
    return _unmarked_utf16(sample) or _utf8(sample) or _code_page(sample)


def decode_chunks(stream: BinaryIO) -> tuple[str, Iterator[str]]:
    """Return (encoding, text in pieces of about a megabyte) of a binary stream. A byte-order mark is dropped."""
    sample = _read_fully(stream, SAMPLE_BYTES)
    encoding = detect_encoding(sample)
    return encoding, _pieces(stream, sample, encoding)


def _pieces(stream: BinaryIO, sample: bytes, encoding: str) -> Iterator[str]:
    decoder = codecs.getincrementaldecoder(encoding)(errors="replace")
    first = decoder.decode(sample)
    yield first.removeprefix("\ufeff")
    while chunk := stream.read(_CHUNK_BYTES):
        yield decoder.decode(chunk)
    yield decoder.decode(b"", final=True)


def _read_fully(stream: BinaryIO, size: int) -> bytes:
    """Read ``size`` bytes even from a pipe that gives less at a time."""
    parts: list[bytes] = []
    while size > 0 and (part := stream.read(size)):
        parts.append(part)
        size -= len(part)
    return b"".join(parts)


def _unmarked_utf16(sample: bytes) -> str | None:
    r"""UTF-16 of mostly ASCII text has a zero in nearly every second byte.

    A stray zero must not count: torch 2.3 prints the device index as a raw byte, so "GPU \0 has" is plain UTF-8.
    """
    pairs = len(sample) // 2
    if pairs < 2:
        return None
    even, odd = sample[0::2].count(0), sample[1::2].count(0)
    if odd > 0.4 * pairs and even < 0.05 * pairs:
        return "utf-16-le"
    if even > 0.4 * pairs and odd < 0.05 * pairs:
        return "utf-16-be"
    return None


def _utf8(sample: bytes) -> str | None:
    """UTF-8 when most of its non-ASCII bytes are; a progress bar cut in two must not turn a log into a code page."""
    text = sample.decode("utf-8", errors="replace")
    broken = text.count("\ufffd") - sample.count("\ufffd".encode())
    good = sum(character > "\x7f" for character in text) - broken
    return "utf-8" if broken <= 1 or broken <= good // 4 else None


def _code_page(sample: bytes) -> str:
    """GBK against Shift-JIS against western Windows: whose decoding gives common letters of its own language."""
    scores = {encoding: _score(sample, encoding) for encoding in ("gb18030", "cp932", "cp1252")}
    return max(scores, key=lambda encoding: scores[encoding])


def _score(sample: bytes, encoding: str) -> float:
    text = sample.decode(encoding, errors="replace")
    foreign = [character for character in text if character > "\x7f"]
    if not foreign:
        return 0.0
    if encoding == "cp932":
        # Japanese prose is mostly kana; half-width katakana (U+FF61..) is what Chinese looks like when misread.
        good = float(sum("\u3040" <= c <= "\u30ff" or c in "、。" for c in foreign))
        good += sum("\u4e00" <= c <= "\u9fff" for c in foreign) / 2 if good else 0
    elif encoding == "gb18030":
        # The first level of GB 2312 (bytes B0 to D7) holds the 3,755 common characters.
        good = float(sum(_is_common_hanzi(c) or c in "，。：（）“”" for c in foreign))
    else:
        good = sum(c in "äöüßéèêàçñóíáúãõâîôûÄÖÜÉ’“”–…" for c in foreign) / 2
    return good / len(foreign)


def _is_common_hanzi(character: str) -> bool:
    encoded = character.encode("gb2312", errors="ignore")
    return len(encoded) == 2 and 0xB0 <= encoded[0] <= 0xD7
