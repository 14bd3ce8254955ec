"""Who arrives when, and how it ends: the schedule of ``serve`` in ticks, decided by the seed. Pure; knows no model."""

from __future__ import annotations

import random
from collections import deque
from collections.abc import Iterator
from dataclasses import dataclass, field

from vramdoc.workload.lengths import Prefixes, Request

MEAN_GAP = 3.0
"""Mean ticks between arrivals: with answers of a dozen tokens, about five sessions would like to talk at once."""
CANCELLED, ABANDONED = 0.1, 0.1
"""Shares of sessions that are cut off in mid-answer, and that nobody tells the server about when they leave."""
ABANDONED_TICKS = 40
"""How long the server keeps an abandoned session before it times out."""


@dataclass(frozen=True, slots=True)
class Arrival:
    """One session: it arrives at ``tick``, and is cut off after ``answer`` of its output tokens."""

    session: int
    tick: int
    request: Request
    answer: int
    end: str
    """``"finished"``, ``"cancelled"`` or ``"abandoned"``."""


def arrivals(requests: list[Request], context: int, seed: int) -> list[Arrival]:
    """Put ``requests`` on a clock; inputs and outputs are cut so that both fit ``context``."""
    draw = random.Random(seed)  # noqa: S311 - a reproducible schedule, not a secret
    clock, made = 0.0, []
    for session, asked in enumerate(requests):
        clock += draw.expovariate(1 / MEAN_GAP)
        output = min(asked.output, max(1, context // 2))
        request = Request(
            min(asked.input, context - output),
            output,
            asked.prefix_tokens,
            asked.prefix,
            asked.blocks,
        )
        fate = draw.random()
        end = (
            "cancelled"
            if fate < CANCELLED
            else "abandoned"
            if fate < CANCELLED + ABANDONED
            else "finished"
        )
        answer = output if end == "finished" else draw.randint(1, output)
        made.append(Arrival(session, int(clock), request, answer, end))
    return made


@dataclass(slots=True)
class Counts:
    """What became of the sessions."""

    arrived: int = 0
    admitted: int = 0
    waited: int = 0
    turned_away: int = 0
    finished: int = 0
    cancelled: int = 0
    abandoned: int = 0
    prefixes: Prefixes = field(default_factory=Prefixes)


@dataclass(frozen=True, slots=True)
class Event:
    """``"admit"``, ``"token"`` (one more for an open session) or ``"drop"``."""

    kind: str
    arrival: Arrival


def play(coming: list[Arrival], *, limit: int, queue: int, counts: Counts) -> Iterator[Event]:
    """Let at most ``limit`` sessions be open and ``queue`` wait; who finds both full is turned away.

    Each tick every talking session gets one token. A cancelled session is dropped at once, an abandoned one only
    when its time is out: until then it keeps its place and its cache.
    """
    waiting: deque[Arrival] = deque()
    talking: dict[int, tuple[Arrival, int]] = {}
    left: dict[int, tuple[Arrival, int]] = {}
    ahead = deque(coming)
    tick = 0
    while ahead or waiting or talking or left:
        for session, (arrival, since) in list(left.items()):
            if tick - since >= ABANDONED_TICKS:
                del left[session]
                yield Event("drop", arrival)
        while ahead and ahead[0].tick <= tick:
            counts.arrived += 1
            if len(waiting) >= queue and len(talking) + len(left) >= limit:
                counts.turned_away += 1
                ahead.popleft()
                continue
            waiting.append(ahead.popleft())
        while waiting and len(talking) + len(left) < limit:
            arrival = waiting.popleft()
            counts.admitted += 1
            counts.waited += arrival.tick < tick
            counts.prefixes.add(arrival.request)
            talking[arrival.session] = (arrival, 0)
            yield Event("admit", arrival)
        for session, (arrival, spoken) in list(talking.items()):
            yield Event("token", arrival)
            talking[session] = (arrival, spoken + 1)
            if spoken + 1 >= arrival.answer:
                del talking[session]
                setattr(counts, arrival.end, getattr(counts, arrival.end) + 1)
                if arrival.end == "abandoned":
                    left[session] = (arrival, tick)
                else:
                    yield Event("drop", arrival)
        tick += 1
