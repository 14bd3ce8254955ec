"""Prefixes, colours, ranks and the order of lines."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from tests.crashlog.messages import Numbers, async_backend, sentences
from vramdoc.crashlog import parse
from vramdoc.crashlog.lines import channels


def test_ranks_get_a_channel_each_and_a_bare_time_continues_the_last():
    text = "[rank0]: a\n[rank1]: b\n2024-01-01T00:00:00Z c\n[rank0]: d\n"
    found, newest_first = channels(text)
    assert {c.rank: c.text for c in found} == {0: "a\nd\n", 1: "b\nc\n"}
    assert not newest_first


def test_a_message_across_two_records_of_a_log_that_ran_backwards_spans_both():
    """Found by fuzzing: it ended before it started."""
    text = (
        "2024-02-03 03:44:03 to allocate 2.00 GiB\n2024-02-03 01:44:03 CUDA out of memory. Tried\n"
    )
    log = parse(text)
    (incident,) = log.incidents
    assert log.newest_first
    assert 0 <= incident.start < incident.end <= len(text)


def test_workers_without_a_rank_are_kept_apart_by_their_process():
    text = "(RayWorker pid=11) CUDA out of memory.\n(RayWorker pid=12) fine\n(RayWorker pid=11) Tried to allocate 2.00 GiB.\n"
    (incident,) = parse(text).incidents
    assert incident.readings["requested"].value == 2 << 30


@given(st.text(alphabet=st.characters(codec="utf-8"), max_size=400))
def test_every_kept_character_is_traced_to_its_place(text: str):
    for channel in channels(text)[0]:
        for position, character in enumerate(channel.text):
            origin = channel.origin(position)
            if character != "\n":
                assert text[origin] == character


def test_a_console_that_prints_newest_first_is_turned_around():
    text = (
        "2024-02-02 21:44:03.976\nthird: " + sentences(Numbers()) + "\n"
        "2024-02-02 21:43:49.554\nsecond: CUDA error: device-side assert triggered\n"
        "2024-02-02 21:43:48.339\nfirst: # GPU blocks: 7754\n"
    )
    log = parse(text)
    assert log.newest_first
    assert [i.kind for i in log.incidents] == ["device-assert", "cuda-oom"]


def test_lines_of_one_record_keep_their_order_when_the_log_is_turned_around():
    message = async_backend(Numbers())
    text = f"2024-02-02 10:00:02 later\n{message}\n2024-02-02 10:00:01 earlier\n"
    assert parse(text).incidents[0].readings["free"].value == 100 << 20


def test_ordinary_times_do_not_turn_a_log_around():
    text = "2024-02-02 10:00:01 a\n2024-02-02 10:00:03 b\n2024-02-02 10:00:02 c\n"
    assert not parse(text + "MemoryError\n").newest_first


def test_a_gpu_table_is_no_rank_prefix():
    text = "[0] Tesla V100-SXM2-16GB | 44'C,   0 % | 15836 / 16130 MB |\n"
    (row,) = parse(text).observations
    assert (row.readings["device"].value, row.readings["used"].value) == (0, 15836 << 20)
