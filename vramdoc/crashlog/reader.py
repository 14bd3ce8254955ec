"""A crash text in, a CrashLog out: short texts whole, gigabyte logs in windows, so that memory stays small.

It orders and merges what the other modules of this package find, and judges nothing.
"""

from __future__ import annotations

import io
import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import BinaryIO

from vramdoc.crashlog.decode import decode_chunks
from vramdoc.crashlog.incident import CrashLog, Incident, Reading
from vramdoc.crashlog.lines import Channel, channels
from vramdoc.crashlog.observations import read_observations
from vramdoc.crashlog.oom import ANCHORS as OOM_ANCHORS
from vramdoc.crashlog.oom import read_oom_messages, releases
from vramdoc.crashlog.surroundings import (
    Traceback,
    alloc_conf,
    platform,
    signs,
    torch_version,
    tracebacks,
    visible_code,
)
from vramdoc.crashlog.wordings import WORDINGS, Wording, read_wordings
from vramdoc.errors import UnreadableInput

WINDOW = 1 << 20
"""Characters looked at together. A text up to this long is read whole, so that its order in time can be seen."""
OVERLAP = 16 << 10
"""An incident that begins in the last part of a window is read in the next one, where it is complete."""
KEPT = 200
"""Distinct incidents kept of one kind; a log that fails for days repeats itself."""
_TRENDS = frozenset({"memory-use"})
"""Of these the last one is kept as well: it tells how far the figure came."""
_WARNINGS = frozenset({"conf-unsupported", "conf-ignored", "conf-renamed", "out-resized", "killed"})
"""Kinds that may precede or follow the failure itself; its traceback stands before another incident."""
_CLOCK = re.compile(r"\d\d:\d\d:\d\d")
_NEAR = 5_000
"""A message follows its traceback within this many characters, the chained-exception lines included."""


def read_text(source: str | Path | BinaryIO) -> CrashLog:
    """Read a crash text of any size and encoding.

    Args:
        source: a path, or an open binary stream such as ``sys.stdin.buffer``.

    Raises:
        UnreadableInput: the file cannot be read or holds nothing.
    """
    if isinstance(source, (str, Path)):
        try:
            with Path(source).open("rb") as stream:
                return _read_stream(stream)
        except OSError as error:
            name = Path(source).name
            raise UnreadableInput(
                f"{name} cannot be read: {error.strerror or error}", "check the path"
            ) from error
    return _read_stream(source)


def parse(text: str) -> CrashLog:
    """Read a crash text that is already decoded."""
    return _read_pieces(iter([text]), "text")


def _read_stream(stream: BinaryIO | io.TextIOBase) -> CrashLog:
    if isinstance(stream, io.TextIOBase):
        return _read_pieces(iter(lambda: stream.read(WINDOW), ""), "text")
    encoding, pieces = decode_chunks(stream)
    return _read_pieces(pieces, encoding)


def _read_pieces(pieces: Iterator[str], encoding: str) -> CrashLog:
    collected = _Collected()
    characters = 0
    for base, window, is_last in _windows(pieces):
        characters = base + len(window)
        if is_last or _may_hold_a_failure(window):
            stop = len(window) if is_last else len(window) - OVERLAP
            collected.add_window(window, base, stop=stop)
    if not characters:
        raise UnreadableInput("the text is empty", "give the whole output of the failed program")
    return collected.log(encoding, characters)


def _may_hold_a_failure(window: str) -> bool:
    """Whether a window is worth looking at line by line: it holds a literal of some message.

    A literal without letters (137, -9) stands in many numbers, so there the message itself must match.
    """
    if any(anchor in window for anchor in OOM_ANCHORS):
        return True
    return any(
        any(character.isalpha() for character in wording.anchor) or _matches_nearby(wording, window)
        for wording in WORDINGS
        if wording.anchor in window
    )


def _matches_nearby(wording: Wording, window: str) -> bool:
    """Whether the message stands around one of the anchor's places; searching the whole window would cost 30 ms."""
    place = window.find(wording.anchor)
    while place >= 0:
        if wording.pattern.search(window, max(0, place - 80), place + 80):
            return True
        place = window.find(wording.anchor, place + 1)
    return False


def _windows(pieces: Iterator[str]) -> Iterator[tuple[int, str, bool]]:
    """Yield (offset, window, whether it is the last). Neighbours share ``OVERLAP`` characters."""
    buffer, base = "", 0
    for piece in pieces:
        buffer += piece
        while len(buffer) > WINDOW:
            yield base, buffer[:WINDOW], False
            base += WINDOW - OVERLAP
            buffer = buffer[WINDOW - OVERLAP :]
    yield base, buffer, True


@dataclass(slots=True)
class _Collected:
    """What the windows have shown so far."""

    incidents: dict[tuple[object, ...], Incident] = field(default_factory=dict)
    observations: dict[tuple[object, ...], Incident] = field(default_factory=dict)
    alike: dict[str, list[tuple[object, ...]]] = field(default_factory=dict)
    """The keys kept of each kind; a kind is an incident's or an observation's, never both."""
    signs: dict[str, Reading] = field(default_factory=dict)
    version: str | None = None
    platform: str | None = None
    conf: tuple[Reading, Reading] | None = None
    traceback: Traceback | None = None
    traceback_is_settled: bool = False
    code: list[str] = field(default_factory=list)
    newest_first: bool = False

    def add_window(self, text: str, base: int, *, stop: int) -> None:
        """Read one window; what begins at or after ``stop`` is left to the next one."""
        streams, self.newest_first = channels(text)
        found: list[tuple[int, Incident]] = []
        for channel in streams:
            own = [i for i in _outermost(_incidents(channel)) if channel.origin(i.start) < stop]
            found += [
                (_moment(i, channel, self.newest_first), _moved(i, channel, base, text))
                for i in own
            ]
            self._add_traceback(channel, own)
            failure = next((i.start for i in own if i.kind not in _WARNINGS), len(channel.text))
            for observation in read_observations(channel.text, before=failure):
                if channel.origin(observation.start) < stop:
                    self._keep(self.observations, _moved(observation, channel, base, text))
            self._add_surroundings(channel, base)
        for name, sign in signs(text).items():
            self.signs.setdefault(name, replace(sign, start=base + sign.start, end=base + sign.end))
        for _, incident in sorted(found, key=lambda pair: pair[0]):
            self._keep(self.incidents, incident)

    def _keep(self, kept: dict[tuple[object, ...], Incident], incident: Incident) -> None:
        values = tuple(sorted((name, value.value) for name, value in incident.readings.items()))
        key = (incident.kind, incident.wording, incident.rank, values)
        if before := kept.get(key):
            kept[key] = replace(before, repeated=before.repeated + 1)
            return
        alike = self.alike.setdefault(incident.kind, [])
        if len(alike) == KEPT and incident.kind in _TRENDS:
            del kept[alike.pop()]
        if len(alike) < KEPT:
            kept[key] = incident
            alike.append(key)

    def _add_traceback(self, channel: Channel, own: list[Incident]) -> None:
        """Keep the traceback of the first failure; until there is one, the latest seen."""
        if self.traceback_is_settled:
            return
        runs = tracebacks(channel.text)
        failure = next((i for i in own if i.kind not in _WARNINGS), None)
        if failure is not None:
            runs = [run for run in runs if _belongs(run, failure)]
            self.traceback_is_settled = True
        if runs:
            self.traceback = runs[-1]

    def _add_surroundings(self, channel: Channel, base: int) -> None:
        text = channel.text
        self.version = self.version or torch_version(text)
        self.platform = self.platform or platform(text)
        if conf := alloc_conf(text):
            self.conf = (_at(conf[0], channel, base), _at(conf[1], channel, base))
        if len(self.code) < KEPT:
            self.code.extend(visible_code(text))

    def log(self, encoding: str, characters: int) -> CrashLog:
        """Everything, as one record."""
        incidents = tuple(self.incidents.values())
        dated = [
            releases(incident.wording) for incident in incidents if incident.kind == "cuda-oom"
        ]
        since, until = dated[0] if dated and not self.version else (None, None)
        found = dict(self.signs)
        if self.conf:
            found["alloc-conf-variable"] = self.conf[0]
        return CrashLog(
            incidents=incidents,
            encoding=encoding,
            characters=characters,
            torch_version=self.version,
            platform=self.platform,
            alloc_conf=str(self.conf[1].value) if self.conf else None,
            frames=self.traceback.frames if self.traceback else (),
            source_lines=self.traceback.source_lines if self.traceback else (),
            signs=found,
            observations=tuple(self.observations.values()),
            code=tuple(self.code[:KEPT]),
            newest_first=self.newest_first,
            torch_at_least=since,
            torch_at_most=until,
        )


def _belongs(run: Traceback, failure: Incident) -> bool:
    """A traceback stands shortly before its message; a fault handler prints it shortly after."""
    if failure.kind == "segfault" and run.start > failure.start:
        return run.start - failure.end < _NEAR
    return run.start <= failure.start and failure.start - run.end < _NEAR


def _incidents(channel: Channel) -> Iterator[Incident]:
    yield from read_oom_messages(channel.text)
    yield from read_wordings(channel.text)


def _outermost(incidents: Iterable[Incident]) -> list[Incident]:
    """Drop what lies inside another match: the bare class name in a full message, a general wording in a special one."""
    kept: list[Incident] = []
    for incident in sorted(incidents, key=lambda i: (i.start, -i.end)):
        if not kept or incident.end > kept[-1].end:
            kept.append(incident)
    return kept


def _moment(incident: Incident, channel: Channel, newest_first: bool) -> int:  # noqa: FBT001
    """A key that orders incidents by time: the place in the log, unless the log runs backwards."""
    return incident.start if newest_first else channel.origin(incident.start)


def _moved(incident: Incident, channel: Channel, base: int, text: str) -> Incident:
    """The same incident with offsets of the whole log, and with the time on its line of ``text``."""
    start, end = channel.span(incident.start, incident.end)
    times = _CLOCK.findall(text, max(text.rfind("\n", 0, start) + 1, start - 300), start)
    return replace(
        incident,
        clock=times[-1] if times else None,
        start=base + start,
        end=base + end,
        rank=channel.rank,
        readings={name: _at(value, channel, base) for name, value in incident.readings.items()},
    )


def _at(value: Reading, channel: Channel, base: int) -> Reading:
    start, end = channel.span(value.start, value.end)
    return replace(value, start=base + start, end=base + end)
