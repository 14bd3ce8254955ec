"""No hostile or broken snapshot runs anything, ends in a traceback, or takes more than moments and a bounded memory."""

import io
import os

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.attacks import snapshots as attacks
from tests.attacks.limits import limits
from vramdoc.errors import UnreadableInput
from vramdoc.snapshot.model import Snapshot
from vramdoc.snapshot.reader import looks_like_snapshot, read_snapshot
from vramdoc.snapshot.scanner.library import scanner_library
from vramdoc.snapshot.scanner.scan import scan
from vramdoc.snapshot.schema import snapshot_from_plain
from vramdoc.snapshot.unpickle import unpickle

CALLS, BOMBS, DAMAGE = (dict(kind()) for kind in (attacks.calls, attacks.bombs, attacks.damage))


@pytest.fixture(params=["scanner", "reference"])
def way(request, monkeypatch):
    """Both ways of reading a pickle."""
    if request.param == "reference":
        monkeypatch.setattr("vramdoc.snapshot.scanner.library.scanner_library", lambda: None)
    elif scanner_library() is None:
        pytest.skip("no C compiler here")
    return request.param


def written(tmp_path, content, name="dump.pickle"):
    path = tmp_path / name
    path.write_bytes(content)
    return path


def read(path):
    """The snapshot or the refusal, which must be one printable line."""
    looks_like_snapshot(path)
    return one_line_or_result(lambda: read_snapshot(path))


def one_line_or_result(attempt):
    try:
        return attempt()
    except UnreadableInput as error:
        refusal = error
    assert refusal.message.isprintable()
    assert len(refusal.message) < 400
    return refusal


@pytest.mark.parametrize("name", CALLS)
def test_whatever_asks_to_be_called_is_refused(name, way, tmp_path, monkeypatch):
    monkeypatch.setattr(os, "system", lambda _: pytest.fail("it ran"))
    answer = read(written(tmp_path, CALLS[name]))
    assert isinstance(answer, UnreadableInput)


def test_the_refusal_names_what_was_asked_for(way, tmp_path):
    answer = read(written(tmp_path, CALLS["reduce, protocol 4"]))
    assert "'posix'.'system'" in answer.message or "'nt'.'system'" in answer.message
    assert "refused" in answer.message


@pytest.mark.parametrize("name", BOMBS)
def test_bombs_are_refused_or_harmless(name, way, tmp_path):
    path = written(tmp_path, BOMBS[name])
    with limits():
        answer = read(path)
    assert isinstance(answer, (UnreadableInput, Snapshot))


@pytest.mark.parametrize("name", DAMAGE)
def test_damage_is_refused_in_one_line(name, way, tmp_path):
    assert isinstance(read(written(tmp_path, DAMAGE[name])), UnreadableInput)


@pytest.mark.parametrize("wrap", ["plain", "gzip"])
def test_a_file_cut_at_any_byte_is_refused(wrap, way, tmp_path):
    import gzip

    whole = attacks.GOOD if wrap == "plain" else gzip.compress(attacks.GOOD)
    for length in range(len(whole)):
        answer = read(written(tmp_path, whole[:length]))
        assert isinstance(answer, UnreadableInput), length


@given(st.binary(max_size=300))
def test_any_bytes_are_read_or_refused(content):
    for prefix in (b"", attacks.HEAD, attacks.HEAD + b"}(\x8c\x08segments]"):
        refused_or_read(prefix + content)


@given(st.integers(0, len(attacks.GOOD) - 1), st.binary(min_size=1, max_size=3))
def test_a_good_file_with_a_few_bytes_changed_is_read_or_refused(at, changed):
    refused_or_read(attacks.GOOD[:at] + changed + attacks.GOOD[at + len(changed) :])


def refused_or_read(content):
    ways = [lambda: snapshot_from_plain(unpickle(io.BytesIO(content)))]
    if scanner_library() is not None and content.startswith(b"\x80"):
        ways.append(lambda: snapshot_from_plain(*scan(scanner_library(), io.BytesIO(content))))
    for attempt in ways:
        one_line_or_result(attempt)
