"""Request lengths for ``serve``: drawn from a stated distribution, or read from a table of lengths. Never any text.

A table is CSV or JSONL with input and output lengths, and perhaps what is known of repeated prefixes: either
``prefix_tokens`` with a ``prefix`` hash, or ``hash_ids``, one for each block of 512 input tokens (the form of the
Mooncake traces). It knows no model.
"""

from __future__ import annotations

import csv
import json
import random
import re
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TextIO

from vramdoc.errors import UnreadableInput, UsageError

DEFAULT = "lognormal:512,12"
"""Medians of input and output. Inputs are as a chat service's traces have them; answers are kept short, because each
of their tokens is a step that has to be run."""
HASH_BLOCK = 512
SPREAD = 0.8
"""Standard deviation of the logarithm; published serving traces lie between 0.6 and 1.2."""
MAX_ROWS = 1_000_000

_SHAPES = frozenset({"lognormal", "fixed", "uniform"})
_NAMES: Mapping[str, tuple[str, ...]] = {
    "input": (
        "input", "input_length", "input_tokens", "prompt_tokens", "num_prefill_tokens", "contexttokens", "request tokens",
    ),
    "output": (
        "output", "output_length", "output_tokens", "completion_tokens", "num_decode_tokens", "generatedtokens",
        "response tokens",
    ),
}  # fmt: skip
"""Names of columns in published traces (Mooncake, vLLM, Azure, BurstGPT), whatever their case."""


@dataclass(frozen=True, slots=True)
class Request:
    """One request; ``prefix`` names what its first ``prefix_tokens`` input tokens are, for comparison only."""

    input: int
    output: int
    prefix_tokens: int = 0
    prefix: str = ""
    blocks: tuple[str, ...] = ()


def requests(source: str, count: int, seed: int) -> list[Request]:
    """``count`` requests from ``source``: ``lognormal:IN,OUT``, ``uniform:LO-HI,LO-HI``, ``fixed:IN,OUT`` or a file.

    A file with fewer rows is gone through again.

    Raises:
        UsageError: a distribution that cannot be read.
        UnreadableInput: a file that is missing or is no table of lengths.
    """
    source = source or DEFAULT
    name, _, numbers = source.partition(":")
    draw = random.Random(seed)  # noqa: S311 - a reproducible workload, not a secret
    if name in _SHAPES and numbers:
        reads, writes = _bounds(source, numbers)
        return [
            Request(_drawn(name, *reads, draw), _drawn(name, *writes, draw)) for _ in range(count)
        ]
    if name in _SHAPES or "," in numbers:
        raise _no_distribution(source)
    rows = list(_read(Path(source)))
    return [rows[index % len(rows)] for index in range(count)]


def _no_distribution(source: str) -> UsageError:
    return UsageError(
        f"{source!r} is not a distribution of lengths",
        "write for example lognormal:512,64 or uniform:64-2048,16-256",
    )


def _bounds(source: str, numbers: str) -> list[tuple[int, int]]:
    parts = [
        re.fullmatch(r"([1-9]\d{0,8})(?:-([1-9]\d{0,8}))?", part) for part in numbers.split(",")
    ]
    if len(parts) != 2 or None in parts:
        raise _no_distribution(source)
    return [(int(match[1]), int(match[2] or match[1])) for match in parts if match is not None]


def _drawn(name: str, low: int, high: int, draw: random.Random) -> int:
    if name == "lognormal":
        return max(1, round(low * draw.lognormvariate(0.0, SPREAD)))
    return draw.randint(min(low, high), max(low, high))


def _read(path: Path) -> Iterator[Request]:
    try:
        # a spreadsheet puts a byte order mark in front
        with path.open(encoding="utf-8-sig", newline="") as stream:
            by_line = path.suffix in {".jsonl", ".ndjson", ".json"}
            found = 0
            for number, row in _jsonl(path, stream) if by_line else _csv(stream):
                if found == MAX_ROWS:
                    break
                found += 1
                yield _request(path, number, row)
    except OSError as error:
        raise UnreadableInput(f"{path} cannot be read: {error.strerror or error}") from error
    except (ValueError, csv.Error, RecursionError) as error:
        raise UnreadableInput(
            f"{path.name} is not a table of lengths ({str(error)[:80]})"
        ) from error
    if not found:
        raise UnreadableInput(f"{path.name} holds no rows")


Row = tuple[int, Mapping[str, Any]]
"""The line on which it stands, and its values by lower-case column."""


def _csv(stream: TextIO) -> Iterator[Row]:
    head = stream.readline()
    stream.seek(0)
    reader = csv.DictReader(stream, delimiter=";" if ";" in head and "," not in head else ",")
    reader.fieldnames = [name.strip().lower() for name in reader.fieldnames or ()]
    for row in reader:
        yield reader.line_num, row


def _jsonl(path: Path, lines: Iterable[str]) -> Iterator[Row]:
    for number, line in enumerate(lines, start=1):
        if line.strip():
            try:
                row = json.loads(line)
            except ValueError as error:
                raise UnreadableInput(f"{path.name}, line {number}, is not JSON") from error
            if not isinstance(row, dict):
                raise UnreadableInput(
                    f"{path.name}, line {number}, is not a JSON object", "write one object a line"
                )
            yield number, {name.lower(): value for name, value in row.items()}


def _request(path: Path, number: int, row: Mapping[str, Any]) -> Request:
    def length(name: str, at_least: int) -> int:
        value = next(
            (row[key] for key in _NAMES.get(name, (name,)) if row.get(key) not in {None, ""}), None
        )
        if value is None and at_least == 0:
            return 0
        if value is None:
            raise UnreadableInput(
                f"{path.name}, line {number}, has no {name} length", "columns: input, output"
            )
        # a column with gaps comes out of pandas with decimals; what stands there instead may be a prompt, so it is not shown
        whole = re.fullmatch(r"\s*(\d{1,9})(?:\.0+)?\s*", str(value))
        if whole is None or int(whole[1]) < at_least:
            raise UnreadableInput(
                f"{path.name}, line {number}: the {name} length is not a whole number from {at_least} to 999,999,999"
            )
        return int(whole[1])

    blocks = row.get("hash_ids")
    return Request(
        input=length("input", 1), output=length("output", 1), prefix_tokens=length("prefix_tokens", 0),
        prefix=str(row.get("prefix") or ""),
        blocks=tuple(map(str, blocks)) if isinstance(blocks, list) else (),
    )  # fmt: skip


class Prefixes:
    """Counts how much of the input was a prefix that had been seen before."""

    def __init__(self) -> None:
        self._seen: set[tuple[str, ...]] = set()
        self.input_tokens = 0
        self.repeated_tokens = 0

    def add(self, request: Request) -> None:
        """Count one request."""
        self.input_tokens += request.input
        if request.blocks:
            known = 0
            for end in range(1, len(request.blocks) + 1):
                prefix = request.blocks[:end]
                if prefix not in self._seen:
                    self._seen.update(
                        request.blocks[:length] for length in range(end, len(request.blocks) + 1)
                    )
                    break
                known = end
            self.repeated_tokens += min(known * HASH_BLOCK, request.input)
        elif request.prefix:
            if (request.prefix,) in self._seen:
                self.repeated_tokens += min(request.prefix_tokens, request.input)
            self._seen.add((request.prefix,))
