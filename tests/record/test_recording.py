"""A recording's folder: the journal counts until the manifest is complete, and nothing outside the folder does."""

import os
from pathlib import Path

import pytest

from vramdoc.errors import UnreadableInput
from vramdoc.record.recording import (
    Exit,
    ExitKind,
    Manifest,
    Observation,
    Phase,
    is_recording,
    journal_line,
    newest_recording,
    open_recording,
    write_manifest,
)


def manifest(kind: ExitKind = ExitKind.RUNNING) -> Manifest:
    return Manifest(
        created="2026-12-01T10:15:00+00:00",
        tool_version="1",
        versions={},
        platform={},
        alloc_conf="",
        exit=Exit(kind=kind),
    )


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    write_manifest(tmp_path, manifest())
    return tmp_path


def test_what_was_journaled_belongs_to_a_run_that_never_ended(folder: Path) -> None:
    load = Phase(name="load", started_us=5, ended_us=9, active_bytes=100)
    seen = Observation(kind="resize", time_us=6, detail={"line": 3})
    (folder / "journal.jsonl").write_bytes(
        journal_line(Phase(name="load", started_us=5))
        + journal_line(seen)
        + journal_line("cuDNN is off")
        + journal_line(load)
        + journal_line(Phase(name="decode", started_us=10))
    )
    read = open_recording(folder).manifest
    assert read.phases == (load, Phase(name="decode", started_us=10))
    assert read.observations == (seen,)
    assert read.notes == ("cuDNN is off",)


@pytest.mark.parametrize("length", range(1, len(journal_line(Phase(name="b", started_us=2)))))
def test_a_line_that_its_writer_did_not_finish_is_left_out(folder: Path, length: int) -> None:
    whole, torn = (journal_line(Phase(name=name, started_us=1)) for name in "ab")
    (folder / "journal.jsonl").write_bytes(whole + torn[:length])
    names = [phase.name for phase in open_recording(folder).manifest.phases]
    # Without its last newline the line is whole all the same.
    assert names == (["a", "b"] if length == len(torn) - 1 else ["a"])


def test_a_complete_manifest_drops_the_journal(folder: Path) -> None:
    (folder / "journal.jsonl").write_bytes(journal_line("twice"))
    write_manifest(folder, manifest(ExitKind.SUCCESS))
    assert not (folder / "journal.jsonl").exists()
    (folder / "journal.jsonl").write_bytes(journal_line("left behind"))
    assert open_recording(folder).manifest.notes == ()


def test_files_are_named_only_where_they_are(folder: Path) -> None:
    recording = open_recording(folder)
    assert (recording.snapshot_path, recording.oom_snapshot_path) == (None, None)
    (folder / "snapshot.pickle").write_bytes(b"")
    assert recording.snapshot_path == folder / "snapshot.pickle"
    (folder / "snapshot-oom.pickle").mkdir()
    assert recording.oom_snapshot_path is None


def test_ranks_are_in_order_of_their_number(folder: Path) -> None:
    for number in (10, 2, 1):
        (folder / f"rank-{number}").mkdir()
        write_manifest(folder / f"rank-{number}", manifest())
    (folder / "rank-3").mkdir()  # no manifest
    (folder / "rank-x").mkdir()
    names = [recording.folder.name for recording in open_recording(folder).ranks]
    assert names == ["rank-1", "rank-2", "rank-10"]


def test_a_link_does_not_lead_out_of_a_recording(folder: Path, tmp_path_factory) -> None:
    elsewhere = tmp_path_factory.mktemp("elsewhere")
    write_manifest(elsewhere, manifest())
    (folder / "rank-1").symlink_to(elsewhere)
    assert open_recording(folder).ranks == ()


def test_a_recording_is_named_by_its_folder_or_its_manifest(folder: Path) -> None:
    assert open_recording(folder / "manifest.json") == open_recording(folder)
    assert is_recording(folder)
    assert not is_recording(folder / "manifest.json")


@pytest.mark.parametrize("name", ["nothing", "manifest.json/deeper"])
def test_what_is_not_there_is_refused(folder: Path, name: str) -> None:
    with pytest.raises(UnreadableInput, match="not a recording"):
        open_recording(folder / name)


def test_a_broken_manifest_is_refused_when_opened(folder: Path) -> None:
    (folder / "manifest.json").write_text("{")
    with pytest.raises(UnreadableInput, match="JSON"):
        open_recording(folder)


def test_a_manifest_of_absurd_size_is_not_read(folder: Path) -> None:
    os.truncate(folder / "manifest.json", 1 << 40)
    with pytest.raises(UnreadableInput, match="larger"):
        open_recording(folder)


def test_the_newest_recording_is_the_one_started_last(tmp_path: Path) -> None:
    for name in ("20261201-101500-b-aa", "20261201-101501-a-aa", "20250101-000000-z-aa"):
        (tmp_path / name).mkdir()
        write_manifest(tmp_path / name, manifest())
    (tmp_path / "20991231-235959-unfinished-aa").mkdir()
    newest = newest_recording(tmp_path)
    assert newest is not None
    assert newest.folder.name == "20261201-101501-a-aa"
    assert newest_recording(tmp_path / "nowhere") is None
    assert newest_recording(tmp_path / "20991231-235959-unfinished-aa") is None
