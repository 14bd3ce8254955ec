"""The two parsers that PyTorch had for PYTORCH_CUDA_ALLOC_CONF, down to what each says about a bad string.

``Checked`` is the one up to torch 2.9 (c10/cuda/CUDAAllocatorConfig.cpp, lexArgs and consumeToken). ``Lenient`` is the
ConfigTokenizer of 2.10 and newer (c10/core/AllocatorConfig.h), which never verifies a separator: a string with wrong ones
fails later, with an error about something else. Texts were compared with the shipped binaries.

A grammar knows tokens and how numbers are read; it does not know what any key means (``config``).
"""

from __future__ import annotations

import math
import re
from collections.abc import Iterator
from typing import Protocol

_INTEGER = re.compile(r"[ \t\n\v\f\r]*([+-]?)(\d+)")
_FLOAT = re.compile(
    r"[ \t\n\v\f\r]*([+-]?(?:0[xX](?:[0-9a-fA-F]+\.?[0-9a-fA-F]*|\.[0-9a-fA-F]+)(?:[pP][+-]?\d+)?"
    r"|(?:\d+\.?\d*|\.\d+)(?:[eE][+-]?\d+)?|inf(?:inity)?|nan))",
    re.IGNORECASE,
)
_SPECIAL = frozenset(",:[]")
_TOKENS = re.compile(r"[,:\[\]]|[^,:\[\]]+")


class Refusal(Exception):
    """A string that PyTorch refuses. ``exception`` is the class Python would see, ``reason`` PyTorch's own text."""

    def __init__(self, exception: str, reason: str, *, aborts: bool = False) -> None:
        super().__init__(reason)
        self.exception = exception
        self.reason = reason
        self.aborts = aborts
        """The error escapes from a static initialiser: ``import torch`` ends in SIGABRT."""


def signed_int32(text: str) -> int:
    """C++ ``std::stoi``: reads the longest number in front, refuses what does not fit 32 bits."""
    value = _leading_integer(text, "stoi")
    if not -(1 << 31) <= value < 1 << 31:
        raise Refusal("RuntimeError", "stoi")
    return value


def unsigned_int64(text: str, function: str = "stoull") -> int:
    """C++ ``std::stoull`` and ``std::stoul``: a minus sign wraps around, more than 64 bits are refused."""
    value = _leading_integer(text, function)
    if abs(value) >= 1 << 64:
        raise Refusal("RuntimeError", function)
    return value % (1 << 64)


def double(text: str) -> float:
    """C++ ``std::stod``: the longest number in front, hexadecimal, inf and nan included."""
    match = _FLOAT.match(text)
    if match is None:
        raise Refusal("RuntimeError", "stod")
    digits = match[1]
    value = float.fromhex(digits) if "x" in digits.lower() else float(digits)
    if math.isinf(value) and "inf" not in digits.lower():
        raise Refusal("RuntimeError", "stod")
    return value


def is_power_of_2(value: int) -> bool:
    """llvm::isPowerOf2_64 of the value as size_t."""
    value %= 1 << 64
    return value != 0 and value & (value - 1) == 0


def _leading_integer(text: str, function: str) -> int:
    match = _INTEGER.match(text)
    if match is None:
        raise Refusal("RuntimeError", function)
    return int(match[1] + match[2])


class Grammar(Protocol):
    """What ``config`` needs from either parser. ``here`` is the position of the token read last."""

    here: int
    tokens: list[str]

    def each_key(self) -> Iterator[str]:
        """The keys in turn; the caller reads or skips each key's value before it asks for the next."""

    def value(self, missing: str) -> str:
        """The value of the current key; ``missing`` is the older parser's text when there is none."""

    def integer(self, text: str) -> int:
        """A whole number as this release reads it."""

    def switch(self, key: str, *, missing: str | None = None) -> bool:
        """``True`` or ``False`` for ``key``."""

    def skip(self) -> None:
        """Step over the value of the current key."""

    def division_pairs(self) -> Iterator[tuple[str, int]]:
        """Boundary (a number or ``>``) and divisions of a bracketed roundup list, whose ``[`` was just read."""


class Checked:
    """Up to torch 2.9: separators are verified, every refusal is a RuntimeError."""

    def __init__(self, text: str) -> None:
        self.tokens: list[str] = _TOKENS.findall(text.replace(" ", ""))
        self.here = -1

    def each_key(self) -> Iterator[str]:
        """See ``Grammar``."""
        while self.here + 1 < len(self.tokens):
            self.here += 1
            yield self.tokens[self.here]
            if self.here + 1 < len(self.tokens):
                self._consume(",")

    def value(self, missing: str) -> str:
        """See ``Grammar``."""
        self._consume(":")
        self.here += 1
        if self.here >= len(self.tokens):
            raise Refusal("RuntimeError", missing)
        return self.tokens[self.here]

    def integer(self, text: str) -> int:
        """See ``Grammar``."""
        return signed_int32(text)

    def switch(self, key: str, *, missing: str | None = None) -> bool:
        """See ``Grammar``; the host options have a text of their own for a missing value."""
        wanted = f"Expected a single True/False argument for {key}"
        text = self.value(missing or wanted)
        if text not in {"True", "False"}:
            raise Refusal("RuntimeError", wanted)
        return text == "True"

    def skip(self) -> None:
        """Never needed: this parser reads every key it knows in one pass."""
        raise NotImplementedError

    def division_pairs(self) -> Iterator[tuple[str, int]]:
        """See ``Grammar``."""
        self.here += 1
        while self.here < len(self.tokens) and self.tokens[self.here] != "]":
            boundary = self.tokens[self.here]
            text = self.value("Error parsing roundup_power2_divisions value")
            yield boundary, signed_int32(text)
            # The binaries read one token past an unclosed list here; up to 2.7 they crash on it, then they say this.
            if self.here + 1 >= len(self.tokens) or self.tokens[self.here + 1] != "]":
                self._consume(",")
            self.here += 1

    def _consume(self, separator: str) -> None:
        self.here += 1
        if self.here >= len(self.tokens) or self.tokens[self.here] != separator:
            raise Refusal(
                "RuntimeError", f"Error parsing CachingAllocator settings, expected {separator}"
            )


class Lenient:
    """Torch 2.10 and newer: any token passes for a separator, bad values are ValueErrors."""

    def __init__(self, text: str) -> None:
        self.tokens: list[str] = _TOKENS.findall("".join(text.split()))
        self.here = -1

    def each_key(self) -> Iterator[str]:
        """See ``Grammar``."""
        while self.here + 1 < len(self.tokens):
            self.here += 1
            yield self.tokens[self.here]
            if self.here + 1 < len(self.tokens):
                self.here += 1

    def rewind(self) -> Lenient:
        """Start again for the next pass."""
        self.here = -1
        return self

    def value(self, missing: str = "") -> str:  # noqa: ARG002 - the other grammar needs it
        """See ``Grammar``."""
        self.step()
        return self.step()

    def step(self) -> str:
        """The next token; past the end PyTorch's tokenizer fails an internal assertion."""
        self.here += 1
        if self.here >= len(self.tokens):
            raise Refusal("RuntimeError", "Index out of bounds in ConfigTokenizer")
        return self.tokens[self.here]

    def integer(self, text: str) -> int:
        """See ``Grammar``."""
        return unsigned_int64(text)

    def switch(self, key: str, *, missing: str | None = None) -> bool:  # noqa: ARG002 - as in ``value``
        """See ``Grammar``."""
        text = self.value()
        if text not in {"True", "False"}:
            raise Refusal(
                "ValueError",
                f"Expected 'True' or 'False' at index {self.here} in ConfigTokenizer but got '{text}'",
            )
        return text == "True"

    def skip(self) -> None:
        """ConfigTokenizer::skipKey."""
        if self.value() != "[":
            return
        while self.here < len(self.tokens) and self.tokens[self.here] != "]":
            self.here += 1
        if self.here >= len(self.tokens):
            raise Refusal(
                "RuntimeError",
                "Expected closing bracket ']' in ConfigTokenizer but reached end of config",
            )

    def division_pairs(self) -> Iterator[tuple[str, int]]:
        """See ``Grammar``."""
        while (boundary := self.step()) != "]":
            yield boundary, unsigned_int64(self.value())
            following = self.step()
            if following == "]":
                return
