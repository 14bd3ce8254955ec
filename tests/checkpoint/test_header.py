"""Headers: what safetensors writes is read exactly; what lies is refused in one line, before anything large is read."""

import json
import resource
import sys
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from safetensors import SafetensorError, safe_open
from safetensors.numpy import save, save_file

from tests.checkpoint.sparse import header_of, write_raw, write_sparse
from vramdoc.checkpoint.header import read_header
from vramdoc.errors import UnreadableInput

A = {"dtype": "F32", "shape": [2], "data_offsets": [0, 8]}
B = {"dtype": "F32", "shape": [2], "data_offsets": [8, 16]}
DUPLICATE = b'{"a":{"dtype":"F32","shape":[2],"data_offsets":[0,8]},"a":{"dtype":"F32","shape":[2],"data_offsets":[0,8]}}'

LIES = {
    "overlap": ({"a": A, "b": {**B, "data_offsets": [4, 12]}}, 16, "overlaps"),
    "the same bytes twice": ({"a": A, "b": A}, 8, "overlaps"),
    "gap": ({"a": A, "b": {**B, "data_offsets": [12, 20]}}, 20, "leaves a gap"),
    "first one not at zero": ({"b": B}, 16, "leaves a gap"),
    "truncated data": ({"a": A, "b": B}, 12, "truncated"),
    "bytes of nobody": ({"a": A}, 12, "no tensor in its header owns"),
    "size against shape": ({"a": {**A, "shape": [3]}}, 8, "offsets give it 8"),
    "backwards": ({"a": {**A, "data_offsets": [8, 0]}}, 8, "offsets give it -8"),
    "unknown type": ({"a": {**A, "dtype": "F31"}}, 8, "unknown type"),
    "negative size": ({"a": {**A, "shape": [-2]}}, 8, "not a list of sizes"),
    "size as text": ({"a": {**A, "shape": ["2"]}}, 8, "not a list of sizes"),
    "size as truth": ({"a": {**A, "shape": [True, 2]}}, 8, "not a list of sizes"),
    "overflowing size": ({"a": {**A, "shape": [1 << 63, 2]}}, 8, "not a list of sizes"),
    "product overflows": ({"a": {**A, "shape": [1 << 62, 1 << 62]}}, 8, "needs"),
    "three offsets": ({"a": {**A, "data_offsets": [0, 4, 8]}}, 8, "not two positions"),
    "not a table": ({"a": 3}, 8, "not described by a table"),
    "metadata not a table": ({"__metadata__": [], "a": A}, 8, "__metadata__"),
    "not JSON": (b"{nonsense}", 8, "not valid JSON"),
    "a list": (b"[]      ", 8, "not a safetensors file"),
    "deep nesting": (b'{"a":' * 100_000, 8, "not valid JSON"),
    "huge number": (b'{"a":{"dtype":"F32","shape":[' + b"9" * 5000 + b"]}}", 8, "not valid JSON"),
    "the same name twice": (DUPLICATE, 8, "appears twice"),
    "not text": (b"{\xff\xfe}", 8, "not valid JSON"),
}  # fmt: skip


@pytest.mark.parametrize(("header", "data", "says"), LIES.values(), ids=LIES)
def test_lying_header_is_refused_in_one_line(
    tmp_path: Path, header: object, data: int, says: str
) -> None:
    with pytest.raises(UnreadableInput, match=says) as refused:
        read_header(write_raw(tmp_path / "m.safetensors", header, data))
    assert "\n" not in str(refused.value)
    assert len(str(refused.value)) < 400


@pytest.mark.parametrize(
    ("content", "says"),
    [
        (b"", "is empty"),
        (b"abc", "not a safetensors file"),
        (b"PK\x03\x04" + bytes(40), "truncated|not a safetensors"),
        ((1 << 40).to_bytes(8, "little") + b"{}", "not a safetensors file"),
        ((999).to_bytes(8, "little") + b"{}", "truncated"),
        (b"version https://git-lfs.github.com/spec/v1\noid sha256:0\nsize 5\n", "Git LFS pointer"),
    ],
)
def test_other_files_are_named_for_what_they_are(tmp_path: Path, content: bytes, says: str) -> None:
    path = tmp_path / "m.safetensors"
    path.write_bytes(content)
    with pytest.raises(UnreadableInput, match=says):
        read_header(path)


def test_missing_file_is_refused(tmp_path: Path) -> None:
    with pytest.raises(UnreadableInput, match="cannot be read"):
        read_header(tmp_path / "absent.safetensors")


@pytest.mark.skipif(sys.platform == "win32", reason="resource is POSIX")
def test_file_of_140_gigabytes_costs_its_header(tmp_path: Path) -> None:
    path = write_sparse(
        tmp_path / "m.safetensors", {f"layer.{i}": ("BF16", (70, 10**9)) for i in range(1)}
    )
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    (tensor,), _ = read_header(path)
    assert tensor.nbytes == 140 * 10**9
    assert resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before < 10_000


DTYPES = {"F32": np.float32, "F16": np.float16, "I64": np.int64, "U8": np.uint8, "BOOL": np.bool_}
arrays = st.dictionaries(
    st.text(st.characters(codec="utf-8", exclude_characters="\0"), min_size=1, max_size=20).filter(lambda name: name != "__metadata__"),
    st.tuples(st.sampled_from(sorted(DTYPES)), st.lists(st.integers(0, 5), max_size=3)),
    max_size=6,
)  # fmt: skip


@given(described=arrays)
def test_what_safetensors_writes_is_read_exactly(
    tmp_path_factory: pytest.TempPathFactory, described: dict
) -> None:
    path = tmp_path_factory.mktemp("written") / "m.safetensors"
    save_file(
        {name: np.zeros(shape, DTYPES[dtype]) for name, (dtype, shape) in described.items()}, path
    )
    tensors, _ = read_header(path)
    assert {t.name: (t.dtype, list(t.shape)) for t in tensors} == described
    assert [t.offset for t in tensors] == sorted(t.offset for t in tensors)


@given(
    cut=st.integers(0, 200),
    flips=st.lists(st.tuples(st.integers(0, 150), st.integers(0, 255)), max_size=3),
)
def test_reads_a_damaged_file_exactly_when_safetensors_does(
    tmp_path_factory: pytest.TempPathFactory, cut: int, flips: list[tuple[int, int]]
) -> None:
    """The library is the oracle: we refuse what it refuses, and never read what it would not."""
    data = bytearray(save({"a": np.zeros(4, np.float32), "b": np.zeros((2, 3), np.float16)}))
    for at, byte in flips:
        data[at % len(data)] = byte
    path = tmp_path_factory.mktemp("damaged") / "m.safetensors"
    path.write_bytes(bytes(data[: len(data) - cut]))
    try:
        ours: set[str] | None = {tensor.name for tensor in read_header(path)[0]}
    except UnreadableInput:
        ours = None
    try:
        with safe_open(path, framework="np") as opened:
            theirs: set[str] | None = set(opened.keys())
    except (SafetensorError, OSError, ValueError):
        theirs = None
    if theirs is None:
        assert ours is None
    elif ours is not None:
        assert ours == theirs


def test_headers_made_here_are_what_safetensors_would_read(tmp_path: Path) -> None:
    tensors = {"a": ("BF16", (4, 4)), "b": ("F8_E4M3", (3,))}
    path = write_sparse(tmp_path / "m.safetensors", tensors)
    with safe_open(path, framework="np") as opened:
        assert set(opened.keys()) == set(json.loads(json.dumps(header_of(tensors))))
