"""Texts that make a careless expression look at the same characters again and again: minutes a megabyte, or bounded."""

import io

import pytest

from tests.attacks.limits import limits
from vramdoc.crashlog.reader import read_text

TEXTS = {
    "blank lines": "\n",
    "blanks": " ",
    "a word and blanks": "torch" + " " * 250_000,
    "a word and blank lines": "torch" + "\n" * 250_000,
    "a line of failures": "    Reason:       OOMKil",
    "a line of verbs": "memory increasing, ",
    "open brackets": "[(",
    "half an escape": "\x1b[",
    "frames": '  File "x", line 1, in y\n',
    "a half message": "Tried to allocate ",
    "dashes": "-" * 250_000,
    "digits": "1" * 250_000,
    "bars": "│ ❱ ",
}


@pytest.mark.parametrize("text", TEXTS.values(), ids=TEXTS)
def test_a_text_of_one_thing_is_read_in_moments(text: str) -> None:
    whole = (text * (250_000 // len(text) + 1))[:250_000]
    with limits():
        assert read_text(io.BytesIO(whole.encode())).characters == len(whole)
