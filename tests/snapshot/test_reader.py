"""One way in for everything a snapshot is kept in, told by content."""

import base64
import gzip
import json
import pickle
import subprocess
import sys

import pytest

from tests.snapshot.plain import FRAMES, assert_same, block, event, segment, snapshot
from vramdoc.errors import UnreadableInput
from vramdoc.snapshot.reader import looks_like_snapshot, read_snapshot

DATA = snapshot(
    [
        segment(
            4096, [block(4096, 1024, requested=1000, frames=FRAMES), block(5120, 512, "inactive")]
        )
    ],
    [event("segment_alloc", 4096, 1536), event("alloc", 4096, 1000, frames=FRAMES, pool_id=(0, 1))],
    external_annotations=[{"name": "step", "stage": "START", "device": 0, "time_us": 5}],
)


def page(pickled):
    """What torch.cuda._memory_viz writes (its template, with the pickle padded to a multiple of three)."""
    padded = pickled + b"\x00" * (3 - len(pickled) % 3)
    files = json.dumps([{"name": "snapshot.pickle", "base64": base64.b64encode(padded).decode()}])
    return (
        "\n<!DOCTYPE html>\n<html>\n<head>\n</head>\n<body>\n<script type=\"module\">\n"
        f'import {{add_local_files}} from "https://example.org/MemoryViz.js"\nconst local_files = {files}\n'
        "add_local_files(local_files, 'Active Memory Timeline')\n</script>\n</body>\n"
    ).encode()  # fmt: skip


WRAPPED = {
    **{f"pickle, protocol {n}": pickle.dumps(DATA, n) for n in range(6)},
    "json": json.dumps(DATA).encode(),
    "json with a mark and blanks": b"\xef\xbb\xbf\n " + json.dumps(DATA).encode(),
    "gzip": gzip.compress(pickle.dumps(DATA)),
    "gzip of json": gzip.compress(json.dumps(DATA).encode()),
    "page": page(pickle.dumps(DATA)),
    "page of protocol 0": page(pickle.dumps(DATA, 0)),
}


@pytest.mark.parametrize("name", WRAPPED)
def test_every_wrapping_gives_the_same_snapshot(name, tmp_path):
    path, plain = tmp_path / "any.name", tmp_path / "plain.pickle"
    path.write_bytes(WRAPPED[name])
    plain.write_bytes(pickle.dumps(DATA))
    assert looks_like_snapshot(path)
    found = read_snapshot(path)
    assert_same(found, read_snapshot(plain))
    assert found.traces[0][1].pool_id == (0, 1)
    assert found.segments[0].blocks[0].frames[0].name == "step"


def test_the_list_that_memory_snapshot_returns_is_segments_alone(tmp_path):
    path = tmp_path / "segments.pickle"
    path.write_bytes(pickle.dumps(DATA["segments"]))
    found = read_snapshot(path)
    assert (len(found.segments), found.traces) == (1, ())


@pytest.mark.parametrize(
    ("content", "expected"),
    [
        (b"", False),
        (b"torch.OutOfMemoryError: CUDA out of memory.", False),
        (b'{"metadata": {}, "weight_map": {"a": "model-1.safetensors"}}', False),
        (b"PK\x03\x04", False),
        (b"(most recent call last):\n", False),
        (b"(default0): CUDA out of memory\n", False),
        (b"<html><body>hello</body></html>", False),
        (pickle.dumps([1]), True),  # what a pickle holds is known by reading it
        (b'{"segments": []}', True),
    ],
)
def test_a_snapshot_is_recognised_by_its_first_bytes(content, expected, tmp_path):
    path = tmp_path / "file"
    path.write_bytes(content)
    assert looks_like_snapshot(path) is expected


def test_errors_name_the_file_and_say_what_to_do(tmp_path):
    path = tmp_path / "weights.pickle"
    path.write_bytes(pickle.dumps({"a": 1}))
    with pytest.raises(UnreadableInput) as caught:
        read_snapshot(path)
    assert (
        caught.value.message
        == "weights.pickle: not an allocator snapshot: it has no list of segments"
    )
    assert "_dump_snapshot" in caught.value.hint
    with pytest.raises(UnreadableInput, match=r"missing\.pickle does not exist"):
        read_snapshot(tmp_path / "missing.pickle")
    with pytest.raises(UnreadableInput, match="cannot be read"):
        read_snapshot(tmp_path)


def test_recognising_loads_no_numpy(tmp_path):
    path = tmp_path / "a.pickle"
    path.write_bytes(pickle.dumps(DATA))
    code = (
        "import sys, pathlib; from vramdoc.snapshot.reader import looks_like_snapshot; "
        "assert looks_like_snapshot(pathlib.Path(sys.argv[1])); print('numpy' in sys.modules)"
    )
    done = subprocess.run(
        [sys.executable, "-c", code, path], capture_output=True, text=True, check=True
    )
    assert done.stdout == "False\n"
