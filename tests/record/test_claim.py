"""Which folder is whose, without a coordinator."""

import sys
from concurrent.futures import ProcessPoolExecutor
from multiprocessing import get_context
from pathlib import Path

import pytest

from vramdoc.record.claim import claim_folder, rank_of
from vramdoc.record.recording import Exit, ExitKind, Manifest, write_manifest


def complete(folder: Path) -> None:
    manifest = Manifest(
        created="",
        tool_version="",
        versions={},
        platform={},
        alloc_conf="",
        exit=Exit(kind=ExitKind.SUCCESS),
    )
    write_manifest(folder, manifest)


def test_rank_zero_has_the_run_and_the_others_a_folder_each(tmp_path: Path) -> None:
    run = tmp_path / "run"
    assert claim_folder(run, 2) == run / "rank-2"
    assert claim_folder(run, 0) == run
    assert claim_folder(run, 1) == run / "rank-1"


def test_without_ranks_the_first_has_the_run(tmp_path: Path) -> None:
    run = tmp_path / "run"
    folders = [claim_folder(run, None) for _ in range(3)]
    assert folders == [run, run / "rank-1", run / "rank-2"]


def test_a_finished_process_keeps_its_folder(tmp_path: Path) -> None:
    run = tmp_path / "run"
    complete(claim_folder(run, None))
    assert claim_folder(run, None) == run / "rank-1"
    assert not (run / "journal.jsonl").exists()


@pytest.mark.skipif(sys.platform == "win32", reason="spawning is slow there")
def test_many_processes_at_once_never_share(tmp_path: Path) -> None:
    run = tmp_path / "run"
    with ProcessPoolExecutor(4, mp_context=get_context("fork")) as pool:
        folders = list(pool.map(claim_folder, [run] * 40, [None] * 40))
    assert len(set(folders)) == 40


@pytest.mark.parametrize(
    ("environment", "rank"),
    [
        ({"RANK": "3", "LOCAL_RANK": "1"}, 3),
        ({"SLURM_PROCID": "7"}, 7),
        ({"RANK": "", "OMPI_COMM_WORLD_RANK": "2"}, 2),
        ({"RANK": "first"}, None),
        ({}, None),
    ],
)
def test_the_launcher_names_the_rank(environment: dict[str, str], rank: int | None) -> None:
    assert rank_of(environment) == rank
