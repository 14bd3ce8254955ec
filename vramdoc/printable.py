"""Foreign text made safe to print: nothing in it can steer a terminal, hide, reorder or break a line. It knows no format."""

from __future__ import annotations

import re
import unicodedata

_ESCAPE_SEQUENCE = re.compile(
    r"\x1b\[[0-?]*[ -/]*[@-~]"  # CSI: colours, cursor moves
    r"|\x1b[\]PX^_][^\x07\x1b\x9c]*(?:\x07|\x1b\\|\x9c)"  # OSC, DCS, SOS, PM, APC up to their terminator
    r"|\x9b[0-?]*[ -/]*[@-~]"  # CSI as one C1 byte
)
_COMMAND = re.compile(r"(?<!\S)(?::(?=:[a-z])|##(?=\[))")
"""What a CI runner takes for an order when a line of a job's log begins with it: ``::error``, ``##[group]``."""
_KEPT = frozenset("\n\t")
_UNSAFE_CATEGORIES = frozenset({"Cc", "Cf", "Cs", "Co", "Zl", "Zp"})
"""Controls, invisible formatting (bidi overrides, zero width), surrogates, private use, line and paragraph separators."""

_ASCII = str.maketrans(
    {
        "✓": "+", "✗": "x", "–": "-", "—": "-", "→": "->", "·": "-", "…": "...", "×": "x", "≥": ">=", "≤": "<=",
        "─": "-", "│": "|", "█": "#", "▓": "=", "▒": "~", "░": ".", "‘": "'", "’": "'", "“": '"', "”": '"',
        "±": "+/-",
    }
)  # fmt: skip


def printable(text: str) -> str:
    r"""Return ``text`` without terminal sequences or orders to a CI runner; what else is invisible shows as ``\x1b`` or ``\u202e``."""
    if text.isascii() and text.isprintable() and "::" not in text and "##" not in text:
        return text
    text = _ESCAPE_SEQUENCE.sub("", text).replace("\r\n", "\n")
    return _COMMAND.sub(r"\g<0> ", "".join(c if _is_safe(c) else _visible(c) for c in text))


def one_line(text: str) -> str:
    """``printable`` text with every run of blanks and line breaks as one blank."""
    return " ".join(printable(text).split())


def ascii_form(text: str) -> str:
    r"""``text`` in ASCII: our own marks as their plain forms, foreign letters as ``\u4e2d``."""
    if text.isascii():
        return text
    return text.translate(_ASCII).encode("ascii", "backslashreplace").decode("ascii")


def _is_safe(character: str) -> bool:
    return character in _KEPT or unicodedata.category(character) not in _UNSAFE_CATEGORIES


def _visible(character: str) -> str:
    code = ord(character)
    if code < 0x100:
        return f"\\x{code:02x}"
    return f"\\u{code:04x}" if code < 0x10000 else f"\\U{code:08x}"
