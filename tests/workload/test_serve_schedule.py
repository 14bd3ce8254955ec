"""serve's schedule: lengths are read or drawn, never text; and every session that arrives is accounted for."""

import json
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from vramdoc.errors import UnreadableInput, UsageError
from vramdoc.workload.arrivals import Counts, arrivals, play
from vramdoc.workload.lengths import HASH_BLOCK, Prefixes, Request, requests


@pytest.mark.parametrize(
    "text",
    [
        "\ufeffinput,output\n12,3\n",
        "Input;Output\n12;3\n",
        "input_tokens,output_tokens\n 12 , 3.0\n",
        "TIMESTAMP,ContextTokens,GeneratedTokens\n1,12,3\n",
        "Timestamp,Request tokens,Response tokens,Log Type\n1,12,3,API\n",
    ],
)
def test_tables_are_read_as_spreadsheets_and_published_traces_write_them(
    tmp_path: Path, text: str
) -> None:
    path = tmp_path / "trace.csv"
    path.write_text(text)
    assert requests(str(path), 1, 0) == [Request(12, 3)]


def test_text_in_the_place_of_a_length_is_not_repeated(tmp_path: Path) -> None:
    path = tmp_path / "prompts.csv"
    path.write_text('input,output\n"my secret question",3\n')
    with pytest.raises(UnreadableInput, match="line 2") as refused:
        requests(str(path), 1, 0)
    assert "secret" not in str(refused.value)


def test_csv_of_lengths_is_read(tmp_path: Path) -> None:
    path = tmp_path / "trace.csv"
    path.write_text("input,output,prefix,prefix_tokens\n100,5,abc,64\n200,6,,\n")
    assert requests(str(path), 3, 0) == [
        Request(100, 5, 64, "abc"),
        Request(200, 6),
        Request(100, 5, 64, "abc"),
    ]


def test_jsonl_with_block_hashes_is_read(tmp_path: Path) -> None:
    path = tmp_path / "trace.jsonl"
    rows = [{"timestamp": 0, "input_length": 1300, "output_length": 9, "hash_ids": [1, 2, 3]}] * 2
    path.write_text("\n".join(map(json.dumps, rows)))
    assert requests(str(path), 2, 0)[1] == Request(1300, 9, blocks=("1", "2", "3"))


@pytest.mark.parametrize(
    ("name", "text", "says"),
    [
        ("a.csv", "input,output\n", "no rows"),
        ("a.csv", "in,out\n1,2\n", "line 2, has no input length"),
        ("a.csv", "input,output\n5,-2\n", "line 2: the output length is not"),
        ("a.csv", "input,output\n0,2\n", "line 2: the input length is not"),
        ("a.jsonl", "[1]\n", "line 1, is not a JSON object"),
        ("a.jsonl", "{\n", "line 1, is not JSON"),
        ("a.csv", "input,output\n99999999999999,2\n", "from 1 to 999,999,999"),
    ],
)
def test_bad_tables_are_refused_in_one_line(
    tmp_path: Path, name: str, text: str, says: str
) -> None:
    (tmp_path / name).write_text(text)
    with pytest.raises(UnreadableInput, match=says) as refused:
        requests(str(tmp_path / name), 1, 0)
    assert "\n" not in str(refused.value)


def test_missing_table_is_refused(tmp_path: Path) -> None:
    with pytest.raises(UnreadableInput, match="cannot be read"):
        requests(str(tmp_path / "none.csv"), 1, 0)


@pytest.mark.parametrize(
    "source", ["uniform:5", "lognormal:a,b", "fixed:0,3", "uniform:1-2,3-4,5-6"]
)
def test_bad_distributions_are_refused(source: str) -> None:
    with pytest.raises(UsageError, match="not a distribution"):
        requests(source, 1, 0)


def test_distributions_are_drawn_by_the_seed() -> None:
    assert requests("uniform:10-20,3-4", 50, 1) == requests("uniform:10-20,3-4", 50, 1)
    assert requests("lognormal:512,12", 50, 1) != requests("lognormal:512,12", 50, 2)
    assert all(
        10 <= r.input <= 20 and 3 <= r.output <= 4 for r in requests("uniform:10-20,3-4", 50, 1)
    )
    assert set(requests("fixed:7,2", 3, 0)) == {Request(7, 2)}


def test_repeated_prefixes_are_counted_from_hashes_alone() -> None:
    prefixes = Prefixes()
    for blocks in (("a", "b", "c"), ("a", "b", "x"), ("b", "a", "c"), ("a",)):
        prefixes.add(Request(3 * HASH_BLOCK, 1, blocks=blocks))
    assert prefixes.repeated_tokens == (2 + 0 + 1) * HASH_BLOCK
    for _ in range(3):
        prefixes.add(Request(100, 1, 40, "hash"))
    assert prefixes.repeated_tokens == 3 * HASH_BLOCK + 2 * 40
    assert prefixes.input_tokens == 4 * 3 * HASH_BLOCK + 300


@given(
    lengths=st.lists(st.builds(Request, st.integers(1, 900), st.integers(1, 60)), min_size=1, max_size=40),
    context=st.integers(4, 500), limit=st.integers(1, 6), queue=st.integers(0, 6), seed=st.integers(0, 9),
)  # fmt: skip
def test_every_session_is_accounted_for(
    lengths: list[Request], context: int, limit: int, queue: int, seed: int
) -> None:
    counts = Counts()
    open_sessions: dict[int, int] = {}
    for event in play(arrivals(lengths, context, seed), limit=limit, queue=queue, counts=counts):
        session = event.arrival.session
        match event.kind:
            case "admit":
                assert session not in open_sessions
                open_sessions[session] = event.arrival.request.input
            case "token":
                open_sessions[session] += 1
            case "drop":
                assert (
                    open_sessions.pop(session) == event.arrival.request.input + event.arrival.answer
                )
        assert len(open_sessions) <= limit
        assert all(tokens <= context for tokens in open_sessions.values())
    assert not open_sessions
    assert counts.arrived == len(lengths) == counts.admitted + counts.turned_away
    assert counts.admitted == counts.finished + counts.cancelled + counts.abandoned
