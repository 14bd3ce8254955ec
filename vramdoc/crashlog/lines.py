"""A raw log made readable: colours, per-line prefixes and newest-first order removed, every character traceable to where it stood.

Containers, launchers and engines put a prefix on each line and mix the lines of several ranks. A message of one rank is
readable again when its lines stand together, so the text becomes one channel a rank. It knows no message.
"""

from __future__ import annotations

import re
from bisect import bisect_right
from collections.abc import Iterator
from dataclasses import dataclass, field
from itertools import pairwise

_ESCAPES = re.compile(
    r"\x1b\[[0-?]{0,32}[ -/]{0,4}[@-~]|\x1b\][^\x07\x1b\n]{0,300}(?:\x07|\x1b\\)|\x1b[@-Z\\-_]"
)
_BARE_COLOURS = re.compile(r"\[[0-9]{1,2}(?:;[0-9]{1,3}){0,4}m")
"""Colour codes whose escape character was lost when the log was pasted somewhere."""

_TIMESTAMP = r"\[?\d{4}[-/]\d\d[-/]\d\d[T ]\d\d:\d\d:\d\d(?:[.,]\d{1,9})?(?:Z|[+-]\d\d:?\d\d)?\]?"
_PREFIX = re.compile(
    r"[ \t]{0,4}(?:"
    + _TIMESTAMP
    + r"(?:[ \t]+(?:stdout|stderr)[ \t]+[FP])?"  # Kubernetes, CRI logs
    r"|\((?=[^()\n]{0,100}\b(?:pid|rank)=\d)[^()\n]{1,100}\)"  # Ray, vLLM workers
    r"|\[(?:rank|default)?(?:\d+,)?\d+\](?:<std(?:err|out)>)?:"  # torchrun, DeepSpeed, mpirun
    r"|(?:ERROR|WARNING|INFO|CRITICAL|DEBUG)[ \t]+\d\d-\d\d[ \t]\d\d:\d\d:\d\d[ \t]+(?:\[[^\]\n]{1,80}\]|\w[\w.]{0,60}:\d+\])"  # vLLM
    r"|[\w.-]{1,60}[ \t]+\|(?=[ \t])"  # docker compose
    r"|-[ \t]+(?:[\w.]{1,60}[ \t]+-[ \t]+)?(?:ERROR|WARNING|INFO|CRITICAL|DEBUG)[ \t]+-"  # Python's logging, behind its time
    r"|[A-Z][a-z]{2}[ \t]{1,2}\d{1,2}[ \t]\d\d:\d\d:\d\d[ \t][\w.-]{1,60}[ \t][\w./@-]{1,60}(?:\[\d+\])?:"  # syslog, journald
    r"|>(?!>)(?=[ \t])"  # a quoted mail or comment
    r"|E(?=[ \t]{3})"  # pytest
    r"|\d{1,4}:(?=[ \t])"  # srun --label
    r")[ \t]?"
)
_RANK = re.compile(
    r"\b(?:local_)?rank[=\s]?(\d+)|default(\d+)|(?<![\w.])\[(?:\d+,)?(\d+)\]|^\s*(\d{1,4}):|_TP(\d+)"
)
_PROCESS = re.compile(r"pid=\d+")
_TIME_CHARACTERS = "0123456789-/:.,TZ+ \t"
_LEVEL = re.compile(r"ERROR|WARNING|INFO|CRITICAL|DEBUG")
_LINE_TIME = re.compile(
    r"\s{0,4}\[?(\d{4})[-/](\d\d)[-/](\d\d)[T ](\d\d):(\d\d):(\d\d)(?:[.,](\d{1,9}))?"
)


@dataclass(slots=True)
class Channel:
    """The lines of one rank (or of nobody in particular) as one text, with the offset each piece had in the log."""

    rank: int | None
    parts: list[str] = field(default_factory=list)
    starts: list[int] = field(default_factory=list)
    origins: list[int] = field(default_factory=list)
    length: int = 0
    text: str = ""

    def add(self, piece: str, origin: int) -> None:
        """Append ``piece``, which stood at ``origin`` in the log."""
        self.parts.append(piece)
        self.starts.append(self.length)
        self.origins.append(origin)
        self.length += len(piece)

    def origin(self, position: int) -> int:
        """The offset in the log of the character at ``position`` of this channel's text."""
        index = bisect_right(self.starts, position) - 1
        return self.origins[index] + position - self.starts[index]

    def span(self, start: int, end: int) -> tuple[int, int]:
        """The offsets in the log of the non-empty range ``start`` to ``end``.

        Where a log ran backwards, a range across two records ends before it starts; its span covers both.
        """
        first, last = self.origin(start), self.origin(end - 1)
        return min(first, last), max(first, last) + 1


def channels(text: str) -> tuple[list[Channel], bool]:
    """Split a log into channels; also say whether the console had printed its newest line first."""
    lines, newest_first = _in_time_order(text)
    by_writer: dict[str, Channel] = {}
    writer = ""
    for start, line in lines:
        body, prefix = _strip_prefix(line)
        if prefix:
            writer = _writer_of(line[:prefix], writer)
        if writer not in by_writer:
            by_writer[writer] = Channel(int(writer) if writer.isdecimal() else None)
        _add_clean(by_writer[writer], body, start + prefix)
    for channel in by_writer.values():
        channel.text = "".join(channel.parts)
    return list(by_writer.values()), newest_first


def _strip_prefix(line: str) -> tuple[str, int]:
    """Return (rest, length of what was cut) of one line. Up to five prefixes stack: container, time, worker, level, rank."""
    cut = 0
    for _ in range(5):
        while escape := _ESCAPES.match(line, cut) or _BARE_COLOURS.match(line, cut):
            cut = escape.end()
        match = _PREFIX.match(line, cut)
        if match is None:
            break
        cut = match.end()
    return line[cut:], cut


def _writer_of(prefix: str, before: str) -> str:
    """Who wrote a line: its rank, else its process, else nobody in particular.

    A bare time says nothing about the writer, so it continues the line before.
    """
    if not prefix.strip(_TIME_CHARACTERS):
        return before
    if rank := _RANK.search(prefix):
        return next(group for group in rank.groups() if group is not None)
    if process := _PROCESS.search(prefix):
        return process[0]
    return "" if _LEVEL.search(prefix) else before


def _add_clean(channel: Channel, body: str, origin: int) -> None:
    """Add ``body`` without colour codes."""
    if body.endswith("\r\n"):
        _add_clean(channel, body[:-2], origin)
        channel.add("\n", origin + len(body) - 1)
        return
    position = 0
    if "\x1b" in body or "m" in body:
        for match in _colour_codes(body):
            if match.start() > position:
                channel.add(body[position : match.start()], origin + position)
            position = match.end()
    if position < len(body):
        channel.add(body[position:], origin + position)


def _colour_codes(body: str) -> Iterator[re.Match[str]]:
    yield from (_ESCAPES if "\x1b" in body else _BARE_COLOURS).finditer(body)


def _in_time_order(text: str) -> tuple[list[tuple[int, str]], bool]:
    """Lines with their offsets, oldest first.

    A console that puts its newest record on top is recognised by timestamps at line starts that only ever go back.
    Records (a line with a time and what follows it) change their order, the lines inside a record keep theirs.
    """
    lines: list[tuple[int, str]] = []
    records: list[int] = []
    oldest: tuple[str, ...] = ()
    is_falling, falls = True, False
    position = 0
    for line in text.splitlines(keepends=True):
        if is_falling and (stamp := _LINE_TIME.match(line)):
            time = tuple(group or "" for group in stamp.groups())
            is_falling = not oldest or time <= oldest
            falls = falls or (bool(oldest) and time < oldest)
            oldest = time
            records.append(len(lines))
        lines.append((position, line))
        position += len(line)
    if not (is_falling and falls):
        return lines, False
    ordered = lines[: records[0]]
    for first, last in reversed(list(pairwise([*records, len(lines)]))):
        ordered.extend(lines[first:last])
    return _with_line_ends(ordered), True


def _with_line_ends(lines: list[tuple[int, str]]) -> list[tuple[int, str]]:
    """The log's last line may lack its end, and now stands in the middle."""
    return [(start, line if line.endswith(("\n", "\r")) else line + "\n") for start, line in lines]
