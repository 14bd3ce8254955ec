"""The reference reader of pickles: what Python's compiled unpickler would misread is refused first."""

import io
import pickle

import pytest

from tests.snapshot.plain import event, snapshot
from vramdoc.errors import UnreadableInput
from vramdoc.snapshot.unpickle import unpickle


@pytest.fixture
def content():
    return pickle.dumps(snapshot(events=[event("alloc", 2**40, 700)]), 4)


def reframed(content, length):
    assert content[2] == 0x95
    return content[:3] + length.to_bytes(8, "little") + content[11:]


def test_a_value_across_the_end_of_its_frame_is_refused():
    """CPython drops the first half and takes eight bytes behind the frame, without a word; found by fuzzing."""
    half = b"\x8a\x08\1\2\3\4"
    content = b"\x80\x04\x95" + len(half).to_bytes(8, "little") + half + b"\0\0\0\0NN0." + b"."
    assert pickle.load(io.BytesIO(content)) == int.from_bytes(b"\0\0\0\0NN0.", "little")
    with pytest.raises(UnreadableInput):
        unpickle(io.BytesIO(content))


def test_several_frames_and_a_large_value_between_them_are_read():
    data = {"segments": [], "texts": ["x" * 100_000, *map(str, range(30_000))]}
    content = pickle.dumps(data, 4)
    assert content.count(b"\x95") > 2
    assert unpickle(io.BytesIO(content)) == data


def test_a_frame_beyond_the_file_is_refused(content):
    with pytest.raises(UnreadableInput):
        unpickle(io.BytesIO(reframed(content, 1 << 40)))
