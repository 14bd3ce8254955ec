"""Schedules: decided by their arguments alone, and every conversation ends exactly at its context."""

from collections import Counter

from hypothesis import given
from hypothesis import strategies as st

from vramdoc.workload.conversations import Drop, Turn, batches, chat

specs = st.fixed_dictionaries({
    "context": st.integers(2, 5000), "sessions": st.integers(1, 9), "new_tokens": st.integers(1, 300),
    "seed": st.integers(0, 5),
})  # fmt: skip


@given(spec=specs)
def test_every_conversation_reaches_exactly_its_context_and_ends(spec: dict[str, int]) -> None:
    lengths: Counter[int] = Counter()
    open_sessions: set[int] = set()
    most = 0
    for event in chat(**spec):
        match event:
            case Turn(session, prompt, answer):
                assert prompt >= 1
                assert answer >= 1
                open_sessions.add(session)
                lengths[session] += prompt + answer
            case Drop(session):
                assert lengths[session] == spec["context"]
                open_sessions.remove(session)
        most = max(most, len(open_sessions))
    assert not open_sessions
    assert most == spec["sessions"]


@given(spec=specs)
def test_equal_specs_make_equal_schedules(spec: dict[str, int]) -> None:
    assert list(chat(**spec)) == list(chat(**spec))


def test_all_conversations_are_open_and_full_at_once() -> None:
    full = 0
    lengths: Counter[int] = Counter()
    for event in chat(context=100, sessions=4, new_tokens=5, seed=0):
        if isinstance(event, Drop):
            break
        lengths[event.session] += event.prompt + event.answer
        full = sum(length == 100 for length in lengths.values())
    assert full == 4


@given(
    context=st.integers(1, 600),
    largest=st.integers(1, 64),
    count=st.integers(1, 20),
    seed=st.integers(0, 3),
)
def test_batches_stay_within_bounds_and_start_with_the_largest(
    context: int, largest: int, count: int, seed: int
) -> None:
    drawn = batches(context=context, largest=largest, count=count, seed=seed)
    assert len(drawn) == count
    assert drawn[0] == (largest, context)
    assert all(1 <= size <= largest and 1 <= tokens <= context for size, tokens in drawn)
