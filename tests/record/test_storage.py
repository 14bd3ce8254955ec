"""Files are whole or not there, private, and a full disk is said in one line."""

import errno
import resource
import signal
import stat
import sys
from datetime import datetime, timezone
from pathlib import Path

import pytest

from vramdoc.errors import StorageProblem
from vramdoc.record.storage import (
    create_folder,
    create_root,
    folder_name,
    require_space,
    write_atomically,
)

NOW = datetime(2026, 12, 1, 10, 15, 0, 42_000, tzinfo=timezone.utc)

posix = pytest.mark.skipif(sys.platform == "win32", reason="POSIX permissions and limits")


def test_a_file_is_replaced_as_a_whole(tmp_path: Path) -> None:
    path = tmp_path / "manifest.json"
    write_atomically(path, b"one")
    write_atomically(path, lambda stream: stream.write(b"two"))
    assert path.read_bytes() == b"two"
    assert [entry.name for entry in tmp_path.iterdir()] == ["manifest.json"]


def test_a_failed_write_leaves_the_file_as_it_was(tmp_path: Path) -> None:
    path = tmp_path / "snapshot.pickle"
    write_atomically(path, b"old")

    def fail(stream) -> None:
        stream.write(b"half")
        raise OSError(errno.ENOSPC, "No space left on device")

    with pytest.raises(StorageProblem, match="No space left on device"):
        write_atomically(path, fail)
    assert path.read_bytes() == b"old"
    assert len(list(tmp_path.iterdir())) == 1


def test_another_error_while_writing_leaves_nothing_either(tmp_path: Path) -> None:
    def fail(_stream) -> None:
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        write_atomically(tmp_path / "snapshot.pickle", fail)
    assert list(tmp_path.iterdir()) == []


@posix
def test_a_disk_that_fills_up_while_writing_leaves_nothing(tmp_path: Path) -> None:
    before = resource.getrlimit(resource.RLIMIT_FSIZE)
    handler = signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
    resource.setrlimit(resource.RLIMIT_FSIZE, (1 << 16, before[1]))
    try:
        with pytest.raises(StorageProblem, match=r"big\.pickle"):
            write_atomically(tmp_path / "big.pickle", bytes(1 << 20))
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, before)
        signal.signal(signal.SIGXFSZ, handler)
    assert list(tmp_path.iterdir()) == []


@posix
def test_what_is_written_is_the_users_own(tmp_path: Path) -> None:
    root = tmp_path / ".vramdoc"
    folder = create_folder(root, "train.py", NOW)
    write_atomically(folder / "manifest.json", b"{}")
    modes = {path: stat.S_IMODE(path.stat().st_mode) for path in (root, folder)}
    assert set(modes.values()) == {0o700}
    assert stat.S_IMODE((folder / "manifest.json").stat().st_mode) == 0o600


def test_two_commands_in_one_moment_get_two_folders(tmp_path: Path) -> None:
    folders = {create_folder(tmp_path, "m", NOW) for _ in range(50)}
    assert len(folders) == 50


@pytest.mark.parametrize(
    ("subject", "words"),
    [
        ("model.safetensors", "model.safetensors"),
        ("../../etc/passwd", "etc-passwd"),
        ("mödel\x1b[31m\n.pt", "m-del-31m-.pt"),
        ("...", "run"),
        ("", "run"),
        ("x" * 300, "x" * 40),
    ],
)
def test_a_folder_is_named_by_time_and_subject(subject: str, words: str) -> None:
    name = folder_name(subject, NOW)
    assert name.startswith(f"20261201-101500.042-{words}-")
    assert len(name.rpartition("-")[2]) == 6


def test_the_root_is_invisible_to_git(tmp_path: Path) -> None:
    create_root(tmp_path / "deep" / ".vramdoc")
    assert (tmp_path / "deep" / ".vramdoc" / ".gitignore").read_text() == "*\n"


def test_room_is_asked_for_before_anything_is_made(tmp_path: Path) -> None:
    require_space(tmp_path / "not" / "yet" / "there", 1)
    with pytest.raises(StorageProblem, match="no room"):
        require_space(tmp_path / "not" / "yet" / "there", 1 << 60)
    assert list(tmp_path.iterdir()) == []


def test_a_root_that_is_a_file_is_said_in_one_line(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(StorageProblem) as caught:
        create_folder(tmp_path / "file" / ".vramdoc", "m", NOW)
    assert "\n" not in str(caught.value)
