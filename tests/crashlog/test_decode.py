"""Encodings of consoles: what was written is what is read."""

from __future__ import annotations

import io

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.crashlog.messages import MIB, Numbers, sentences
from vramdoc.crashlog import parse, read_text
from vramdoc.crashlog.decode import decode_chunks, detect_encoding
from vramdoc.errors import UnreadableInput

CHINESE = "页面文件太小，无法完成操作。训练到第三轮时显存不足，程序退出。"
JAPANESE = "ページング ファイルが小さすぎるため、この操作を完了できません。メモリが足りません。"
GERMAN = "Der Vorgang schlug fehl: zu wenig Speicher für die größere Übung."
TEXT = "Traceback\n" + sentences(Numbers(requested=777 * MIB)) + "\n"


@pytest.mark.parametrize(
    ("words", "encoding", "name"),
    [
        (CHINESE, "utf-8", "utf-8"),
        (CHINESE, "utf-8-sig", "utf-8"),
        (CHINESE, "gbk", "gb18030"),
        (JAPANESE, "cp932", "cp932"),
        (GERMAN, "cp1252", "cp1252"),
        (CHINESE, "utf-16", "utf-16-le"),
        ("plain words only", "utf-16-le", "utf-16-le"),
        ("plain words only", "utf-16-be", "utf-16-be"),
        (JAPANESE, "utf-32", "utf-32-le"),
        ("plain", "ascii", "utf-8"),
    ],
)
def test_an_encoding_is_recognised_and_its_text_recovered(words: str, encoding: str, name: str):
    data = (words + "\r\n" + TEXT).encode(encoding)
    log = read_text(io.BytesIO(data))
    assert log.encoding == name
    assert log.incidents[0].readings["requested"].value == 777 * MIB
    _, pieces = decode_chunks(io.BytesIO(data))
    assert "".join(pieces).startswith(words)


def test_the_raw_device_byte_of_torch_2_3_is_no_utf_16():
    data = sentences(Numbers(), raw_device=True).encode()
    assert detect_encoding(data) == "utf-8"
    assert read_text(io.BytesIO(data)).incidents[0].readings["device"].value == 0


def test_a_progress_bar_cut_in_two_does_not_turn_utf_8_into_a_code_page():
    data = "进度 训练 ██████".encode()[:-1] + b"\n" + TEXT.encode()
    assert detect_encoding(data) == "utf-8"


@given(st.binary(max_size=300))
def test_any_bytes_can_be_read(data: bytes):
    if not data:
        with pytest.raises(UnreadableInput):
            read_text(io.BytesIO(data))
        return
    only_a_mark = detect_encoding(data) in {"utf-8", "utf-16-le", "utf-16-be"} and len(data) <= 4
    if not only_a_mark:
        assert read_text(io.BytesIO(data)).characters > 0


@given(st.text(max_size=200), st.text(max_size=200))
def test_whatever_stands_around_a_message_its_figures_are_read_where_they_stand(
    before: str, behind: str
):
    message = sentences(Numbers(requested=777 * MIB))
    text = f"{before}\n{message}\n{behind}"
    log = parse(text)
    assert log.characters == len(text)
    (incident,) = (i for i in log.incidents if i.kind == "cuda-oom")
    assert incident.readings["requested"].value == 777 * MIB
    for one in (*log.incidents, *log.observations):
        assert 0 <= one.start < one.end <= len(text)
        for reading in one.readings.values():
            assert text[reading.start : reading.end] == reading.text


@given(st.lists(st.characters(), min_size=1, max_size=200).map("".join))
def test_text_without_a_known_message_holds_no_incident(text: str):
    """Drawn character by character: of whole strings, hypothesis also draws the sources' constants, which are messages."""
    assert parse(text).incidents == ()
