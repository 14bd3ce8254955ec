"""What the conversations of a workload do, turn by turn: pure data, decided by the spec and its seed alone.

It knows no model and no device. Prompt lengths are drawn, so caches have uneven sizes, as they have in service.
"""

from __future__ import annotations

import random
from collections.abc import Iterator
from dataclasses import dataclass

TURNS = 2
"""Turns of a conversation: enough for caches to grow past one another, few enough to end in seconds."""


@dataclass(frozen=True, slots=True)
class Turn:
    """``session`` sends ``prompt`` tokens and is answered with ``answer`` tokens."""

    session: int
    prompt: int
    answer: int


@dataclass(frozen=True, slots=True)
class Drop:
    """``session`` ends; its cache is let go."""

    session: int


def chat(*, context: int, sessions: int, new_tokens: int, seed: int) -> Iterator[Turn | Drop]:
    """``sessions`` conversations take turns until each holds ``context`` tokens; all are then open at once.

    Then every other one is dropped and a new one grows in its place, into the holes that were left; then all end.
    Turns within a round come in a drawn order.
    """
    draw = random.Random(seed)  # noqa: S311 - a reproducible schedule, not a secret
    first = list(range(sessions))
    yield from _grow(first, context, new_tokens, draw)
    leaving = first[::2] if sessions > 1 else []
    yield from (Drop(session) for session in leaving)
    second = list(range(sessions, sessions + len(leaving)))
    yield from _grow(second, context, new_tokens, draw)
    yield from (Drop(session) for session in first + second if session not in leaving)


def _grow(
    sessions: list[int], context: int, new_tokens: int, draw: random.Random
) -> Iterator[Turn]:
    plans = {session: _turns(session, context, new_tokens, draw) for session in sessions}
    for round_turns in zip(*plans.values(), strict=True):
        turns = list(round_turns)
        draw.shuffle(turns)
        yield from turns


def _turns(session: int, context: int, new_tokens: int, draw: random.Random) -> list[Turn]:
    """Turns that sum to exactly ``context`` tokens; a short context gets fewer answers, then fewer tokens."""
    turns = max(1, min(TURNS, context // (new_tokens + 1)))
    answer = min(new_tokens, context - turns)
    prompts = context - turns * answer
    cuts = sorted(draw.sample(range(1, prompts), turns - 1))
    sizes = [end - start for start, end in zip([0, *cuts], [*cuts, prompts], strict=True)]
    return [Turn(session, size, answer) for size in sizes]


def batches(*, context: int, largest: int, count: int, seed: int) -> list[tuple[int, int]]:
    """``count`` batches for an encoder as (size, tokens), drawn; the first is the largest that can come."""
    draw = random.Random(seed)  # noqa: S311 - a reproducible schedule, not a secret
    rest = [
        (draw.randint(1, largest), draw.randint(min(8, context), context)) for _ in range(count - 1)
    ]
    return [(largest, context), *rest]
