"""Growth that a person reports: device memory, that it rises, and with what. Everything else said of memory is no report."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from vramdoc.crashlog import parse, told
from vramdoc.crashlog.told import read_told

REPORTS = [
    ("GPU memory climbs by 1.5 GB with each answer.", "per turn"),
    ("Our bot keeps the history, and VRAM keeps growing after every message it gets", "per turn"),
    ("memory rises from turn to turn until it dies", "per turn"),
    ("GPU memory is never given back and accumulates with every chat.", "per turn"),
    ("对话轮数越多，显存占用一直增加，每轮对话大约三百兆。", "per turn"),
    ("显存每个epoch都在增长。", "per step"),
    ("随着提问的增多，GPU内存占用也会增加", "per turn"),
    ("问答过程中显存不断上涨，结束后也不下降。", "per turn"),
    ("每轮会话都会增长500M的显存且不会释放。", "per turn"),
    ("问答过程中显存一直上涨，怎么解决？", "per turn"),
    ("对话10轮左右，就OOM了。", "long talk"),
    ("多轮会话后显存不足", "long talk"),
    ("The GPU memory increases slowly with every training iteration.", "per step"),
    ("allocated memory grows from epoch to epoch", "per step"),
    ("Once the chat gets too long, it dies with CUDA out of memory", "long talk"),
    ("out of memory, always after a few messages", "long talk"),
    ("After 12 longer replies I am OOM.", "long talk"),
    ("The longer the conversation the surer it is to run out of memory.", "long talk"),
    ("It is out of GPU memory by then, and deleting the history fixes it.", "long talk"),
    ("Long dialogues end in a CUDA memory error.", "long talk"),
    ("聊天记录太长就会爆显存。", "long talk"),
    ("几轮对话之后显存不足。", "long talk"),
]
NO_REPORTS = [
    "Out of memory with a short chat too.",
    "The conversation is not long, and still it is out of memory.",
    "Out of memory after the first message.",
    "OOM after 10 rounds of federated training.",
    "训练10轮后显存不足。",
    "多轮对话时显存会增加吗？",
    "多轮对话数据训练时显存不足。",
    "多轮对话需要增加显存。",
    "随着提问的增多，内存占用也会增加",
    "Is it out of memory because the chat is long?",
    "The host is out of RAM: out of memory after many messages.",
    "The chat got long, so we bought a card with more memory.",
    "It is never out of memory after a few messages.",
    "GPU memory does not grow with each message.",
    "Memory never rises after a question, each answer costs the same.",
    "显存不会增加，每次对话都一样。",
    "Does GPU memory rise with every turn?",
    "Check if GPU memory grows with each turn.",
    "If memory rises with every turn, bound the history.",
    "CPU memory grows with every message.",
    "RAM usage: memory of the host increases per question.",
    "The loss increases with every epoch and memory stays flat.",
    "memory: each message increases a counter",
    "GPU memory grows.",
    "My memory of every turn of this conversation is dim.",
]


@pytest.mark.parametrize(("said", "wording"), REPORTS)
def test_a_report_is_read_with_what_memory_rises_with(said: str, wording: str):
    text = f"We run a small service.\n{said}\nRuntimeError: CUDA error: out of memory\n"
    (told,) = read_told(text)
    assert told.wording == wording
    assert text[told.start : told.end] == told.text == said


def test_a_wrapped_sentence_is_one_and_a_new_line_is_another():
    wrapped = "I run out of memory every time, but only once the dialogue\ngets too long for it"
    assert [told.text for told in read_told(wrapped)] == [wrapped]
    assert list(read_told("I run out of memory.\nthe dialogue gets too long")) == []
    assert list(read_told("I run out of memory\nThe dialogue gets too long")) == []


@pytest.mark.parametrize("said", NO_REPORTS)
def test_denials_questions_host_memory_and_other_growth_are_no_reports(said: str):
    assert list(read_told(said)) == []


@given(
    st.sampled_from(REPORTS),
    st.text(alphabet=st.characters(blacklist_characters="?？"), max_size=60),
)
def test_a_report_is_found_wherever_it_stands(report: tuple[str, str], around: str):
    said, wording = report
    told = [i for i in parse(f"{around}\n\n{said}\n\n{around}").observations if i.kind == "growth-told"]  # fmt: skip
    assert [i.wording for i in told] == [wording]


def test_a_line_of_nothing_but_verbs_is_not_looked_at_from_each_of_them() -> None:
    """A hostile megabyte of them took ten seconds."""
    looked: list[str] = []

    def judge(sentence: str, _before: str) -> None:
        looked.append(sentence)

    assert list(told._reports("OOM " * 3_000, told._FAILS, judge)) == []
    assert 0 < len(looked) < 200
