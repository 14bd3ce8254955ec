"""A parsed form gives the snapshot it was made from, and anything else in its place is ignored."""

import os
import pickle
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given

from tests.evidence.programs import played
from tests.snapshot.plain import FRAMES, assert_same, block, event, segment, snapshot, snapshots
from vramdoc.errors import UnreadableInput
from vramdoc.snapshot import cache
from vramdoc.snapshot.cache import read_snapshot_cached
from vramdoc.snapshot.reader import read_snapshot


@pytest.fixture
def dump(tmp_path):
    allocator, _ = played(1)
    path = tmp_path / "dump.pickle"
    path.write_bytes(pickle.dumps(allocator.snapshot()))
    return path


def cached(path):
    return read_snapshot_cached(path, path.parent / "cache", worthwhile=0)


def kept(path):
    (found,) = (path.parent / "cache").iterdir()
    return found


def forbid_parsing(monkeypatch):
    monkeypatch.setattr(cache, "read_snapshot", lambda _: pytest.fail("it was parsed again"))


def test_the_second_reading_parses_nothing_and_is_the_same(dump, monkeypatch):
    first = cached(dump)
    forbid_parsing(monkeypatch)
    assert_same(cached(dump), first)


@given(snapshots)
def test_every_snapshot_comes_back(tmp_path_factory, data):
    path = tmp_path_factory.mktemp("cache") / "dump.pickle"
    path.write_bytes(pickle.dumps(data))
    assert_same(cached(path), read_snapshot(path))
    assert_same(cached(path), read_snapshot(path))


def test_stacks_of_blocks_and_events_come_back(tmp_path, monkeypatch):
    path = tmp_path / "dump.pickle"
    data = snapshot(
        [segment(0, [block(0, 512, frames=FRAMES), block(512, 512)], frames=FRAMES[:1])],
        [event("alloc", 0, 5, frames=FRAMES[1:], pool_id=(0, 3)), event("new_action", 0, 5)],
    )
    path.write_bytes(pickle.dumps(data))
    first = cached(path)
    forbid_parsing(monkeypatch)
    assert_same(cached(path), first)


def test_other_content_under_the_same_name_is_parsed(dump):
    cached(dump)
    dump.write_bytes(pickle.dumps(snapshot([segment(0, [block(0, 512)])])))
    assert len(cached(dump).segments) == 1


def test_small_files_are_not_kept(dump):
    read_snapshot_cached(dump, dump.parent / "cache")
    assert not (dump.parent / "cache").exists()


@pytest.mark.parametrize("content", [b"", b"PK\x03\x04", b"hello"])
def test_a_damaged_form_is_made_again(dump, content):
    first = cached(dump)
    kept(dump).write_bytes(content)
    assert_same(cached(dump), first)
    assert kept(dump).stat().st_size > 1000


def test_a_form_cut_at_any_byte_is_ignored(dump):
    first = cached(dump)
    whole = kept(dump).read_bytes()
    for length in range(0, len(whole), 997):
        kept(dump).write_bytes(whole[:length])
        assert_same(cached(dump), first)


@pytest.mark.parametrize(
    "forged",
    [
        {"stack0": np.full(5, 99, np.int32)},
        {"action0": np.full(5, 200, np.uint8)},
        {"size0": np.zeros(3, np.int64)},
        {"size0": np.zeros(5, np.float64)},
        {"size0": np.array([None] * 5, object)},
        {"ends": np.array([0, -4, 0], np.int64)},
        {"rest": np.frombuffer(b"[]", np.uint8)},
        {"rest": np.frombuffer(b"[" * 100_000, np.uint8)},
        {
            "rest": np.frombuffer(
                b'{"snapshot": {}, "stacks": [], "frames": [], "problems": []}', np.uint8
            )
        },
    ],
    ids=str,
)
def test_a_forged_form_is_ignored(dump, forged):
    first = cached(dump)
    with np.load(kept(dump)) as arrays:
        content = {**arrays, **forged}
    np.savez(kept(dump), **content)
    assert_same(cached(dump), first)


def test_a_folder_that_cannot_be_written_only_costs_time(dump):
    (dump.parent / "cache").write_text("in the way")
    assert_same(cached(dump), read_snapshot(dump))


def test_errors_are_those_of_reading(tmp_path):
    with pytest.raises(UnreadableInput, match="does not exist"):
        cached(tmp_path / "missing")


def test_of_those_that_share_a_folder_the_longest_unused_give_way(tmp_path):
    for name, used in (("old", 1), ("older", 0), ("new", 2)):
        (tmp_path / f"{name}.npz").write_bytes(bytes(100))
        os.utime(tmp_path / f"{name}.npz", (used, used))
    cache._make_room(tmp_path, 250)
    assert sorted(path.stem for path in tmp_path.iterdir()) == ["new", "old"]
    cache._make_room(tmp_path, 0)
    assert [path.stem for path in tmp_path.iterdir()] == ["new"]


def test_a_form_that_is_used_counts_as_new(dump):
    cached(dump)
    os.utime(kept(dump), (0, 0))
    cached(dump)
    assert kept(dump).stat().st_mtime > 0


def test_a_snapshot_that_lies_alone_is_kept_in_the_users_cache(dump, tmp_path, monkeypatch):
    monkeypatch.setattr(cache, "cache_folder", lambda: tmp_path / "vramdoc")
    first = read_snapshot_cached(dump, worthwhile=0)
    (form,) = (tmp_path / "vramdoc" / "parsed").iterdir()
    assert os.name == "nt" or form.stat().st_mode & 0o077 == 0, "private, as a recording is"
    forbid_parsing(monkeypatch)
    assert_same(read_snapshot_cached(dump, worthwhile=0), first)


def test_a_user_without_a_home_reads_without_a_cache(dump, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr("vramdoc.native.user_cache_path", lambda _: Path("~/.cache/vramdoc"))
    assert_same(read_snapshot_cached(dump, worthwhile=0), read_snapshot(dump))
    assert not (tmp_path / "~").exists()
