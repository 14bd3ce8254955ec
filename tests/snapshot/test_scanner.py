"""The compiled scanner reads what the reference reads, from pieces of any size, and refuses the same files."""

import io
import pickle

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.snapshot.plain import FRAMES, assert_same, event, pickled, snapshot, snapshots
from vramdoc.snapshot.scanner.library import scanner_library
from vramdoc.snapshot.scanner.scan import scan
from vramdoc.snapshot.schema import snapshot_from_plain
from vramdoc.snapshot.unpickle import unpickle

pytestmark = pytest.mark.skipif(scanner_library() is None, reason="no C compiler here")


def scanned(content, pieces=1 << 20):
    return snapshot_from_plain(*scan(scanner_library(), Pieces(content, pieces)))


def referenced(content):
    return snapshot_from_plain(unpickle(io.BytesIO(content)))


class Pieces(io.BytesIO):
    """Gives at most so many bytes a read, as a pipe may."""

    def __init__(self, content, most):
        super().__init__(content)
        self._most = most

    def read(self, size=-1):
        return super().read(min(size, self._most))


@given(snapshots, st.integers(2, 5))
def test_it_reads_what_the_reference_reads(data, protocol):
    content = pickled(data, protocol)
    assert_same(scanned(content), referenced(content))


@given(snapshots, st.integers(1, 9))
def test_pieces_of_any_size_give_the_same(data, pieces):
    content = pickled(data)
    assert_same(scanned(content, pieces), scanned(content))


@pytest.mark.corpus
def test_public_snapshots_read_the_same(public_snapshots):
    for path in sorted(public_snapshots.glob("*.pickle")):
        content = path.read_bytes()
        assert_same(scanned(content), referenced(content))


def test_a_trace_longer_than_one_batch_of_the_pickler_is_one_run():
    data = snapshot(events=[event("alloc", 512 * i, 100 + i, frames=FRAMES) for i in range(2500)])
    trace = scanned(pickled(data)).traces[0]
    assert trace.size.tolist() == [100 + i for i in range(2500)]
    assert len(trace.stacks) == 1


def test_the_columns_outlive_everything_else():
    trace = scanned(pickled(snapshot(events=[event("alloc", 512, 7)]))).traces[0]
    column = trace.size
    del trace
    assert column.tolist() == [7]


def test_a_trace_as_torchscript_pickles_it_reads_the_same():
    """The C++ pickler of an OOM observer writes protocol 2 with one APPENDS for all items, and eight bytes for every long."""
    content = (
        b"\x80\x02}q\x00(X\x08\x00\x00\x00segmentsq\x01]q\x02X\x0d\x00\x00\x00device_tracesq\x03]q\x04(]q\x05("
        b"}q\x06(X\x06\x00\x00\x00actionq\x07X\x05\x00\x00\x00allocq\x08X\x04\x00\x00\x00addrq\x09"
        b"\x8a\x08\x00\x00\x00\x00\x00\x7f\x00\x00X\x04\x00\x00\x00sizeq\x0aK\x07ueeu."
    )
    assert pickle.loads(content)["device_traces"][0][0]["addr"] == 0x7F0000000000
    assert scanned(content).traces[0][0].address == 0x7F0000000000
    assert_same(scanned(content), referenced(content))


def test_a_key_that_is_repeated_counts_with_its_last_value():
    pairs = b"\x8c\x06action\x8c\x05alloc\x8c\x04sizeN\x8c\x04sizeK\x05\x8c\x06action\x8c\x03oom"
    content = b"\x80\x04}(\x8c\x08segments]\x8c\x0ddevice_traces](](}(" + pairs + b"ueeu."
    assert pickle.loads(content)["device_traces"] == [[{"action": "oom", "size": 5}]]
    assert scanned(content).problems == ()
    assert_same(scanned(content), referenced(content))
