"""Many snapshots under many configs: the same table from any executor, also when a worker is killed or the run is interrupted."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from concurrent.futures import Executor, Future, ThreadPoolExecutor
from dataclasses import asdict, replace
from pathlib import Path
from statistics import median

import pytest

from tests.examine.traces import write_rank
from vramdoc.errors import DeviceUnavailable, UsageError
from vramdoc.examine import sweep as examine_sweep
from vramdoc.examine.sweep import SweepRequest, distinct_names, sweep_configs
from vramdoc.replay.compare import replay
from vramdoc.replay.file_task import FileReplays, Task, replay_file
from vramdoc.replay.kept import Kept
from vramdoc.replay.replayable import fidelity, replayable
from vramdoc.replay.sweep import sweep, totals
from vramdoc.report.sweep import render_sweep, render_sweep_json, render_sweep_markdown
from vramdoc.snapshot.reader import read_snapshot

CONFIGS = ("", "expandable_segments:True", "max_split_size_mb:32")
RANKS = 6


@pytest.fixture(scope="module")
def ranks(tmp_path_factory: pytest.TempPathFactory) -> list[Path]:
    folder = tmp_path_factory.mktemp("ranks")
    return [write_rank(folder / f"rank{rank}.pickle", rank) for rank in range(RANKS)]


def tasks_of(paths: list[Path]) -> list[Task]:
    return [Task(path=str(path), configs=CONFIGS) for path in paths]


def as_text(files: list[FileReplays]) -> str:
    """Every figure of a sweep."""
    return json.dumps([asdict(file) for file in files])


class Counting(Executor):
    """Runs at once, and remembers what it was asked to replay."""

    def __init__(self) -> None:
        self.replayed: list[str] = []

    def submit(self, fn: Callable[..., object], /, *args: object, **kwargs: object) -> Future:
        if fn is replay_file:
            self.replayed.append(Path(args[0].path).name)
        future: Future = Future()
        future.set_result(fn(*args, **kwargs))
        return future


def test_each_result_is_what_replaying_that_file_alone_gives(ranks: list[Path]) -> None:
    for task, file in zip(
        tasks_of(ranks), sweep(tasks_of(ranks), ThreadPoolExecutor(1)), strict=True
    ):
        recording = replayable(read_snapshot(Path(task.path)))
        how = fidelity(recording)
        assert file.results == tuple(replay(recording, text, fidelity=how) for text in CONFIGS)
        assert file.exact is how.exact is True


def test_totals_are_the_worst_and_the_median_over_the_files(ranks: list[Path]) -> None:
    files = sweep(tasks_of(ranks), Counting())
    found = totals(files)
    for total in found.configs:
        peaks = [
            result.reserved_peak
            for file in files
            for result in file.results
            if result.config == total.config
        ]
        assert len(peaks) == total.files == RANKS
        assert total.reserved_worst == max(peaks)
        assert total.reserved_median == median(peaks)
        assert total.worst_file == peaks.index(max(peaks)) == RANKS - 1
        assert total.oom_files == ()
    assert found.configs[0].config == "expandable_segments:True"
    assert found.current == ""
    assert found.judgement.winner is not None
    assert found.judgement.winner.config == "expandable_segments:True"


def test_a_file_that_cannot_be_replayed_is_named_and_the_others_count(
    ranks: list[Path], tmp_path: Path
) -> None:
    broken = tmp_path / "broken.pickle"
    broken.write_bytes(ranks[0].read_bytes()[:-9])
    request = SweepRequest(paths=(*ranks[:2], broken), recordings=tmp_path / "recordings")
    table = sweep_configs(request)
    assert [bool(file.problem) for file in table.files] == [False, False, True]
    assert any(note.startswith("broken.pickle cannot be replayed") for note in table.notes)
    assert all(row.files == 2 for row in table.rows)
    with pytest.raises(UsageError, match="none of the 1 snapshots"):
        totals(sweep([Task(path=str(broken), configs=CONFIGS)], Counting()))
    missing = sweep([Task(path=str(tmp_path / "gone.pickle"), configs=CONFIGS)], Counting())
    assert "cannot be read" in missing[0].problem


def test_a_rank_that_a_device_is_too_small_for_is_counted_and_named(
    ranks: list[Path], tmp_path: Path
) -> None:
    large = write_rank(tmp_path / "large.pickle", 50)
    request = SweepRequest(paths=(*ranks, large), gpu="1GiB", recordings=tmp_path)
    table = sweep_configs(request)
    assert {row.oom_files for row in table.rows} == {("large.pickle",)}
    assert {row.worst_file for row in table.rows} == {"large.pickle"}
    assert "1 of 7 out of memory" in render_sweep(table)
    assert "out of memory under every config: large.pickle" in render_sweep(table)


def test_a_worker_of_another_version_is_refused(ranks: list[Path]) -> None:
    with pytest.raises(UsageError, match="a worker has vramdoc"):
        replay_file(replace(tasks_of(ranks)[0], version="0.0.0"))


def test_an_interrupted_sweep_goes_on_where_it_stopped(ranks: list[Path], tmp_path: Path) -> None:
    whole = as_text(sweep(tasks_of(ranks), Counting()))
    kept = Kept(tmp_path / "kept")
    kept.prepare()

    def interrupt(done: int) -> None:
        if done == 4:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        sweep(tasks_of(ranks), Counting(), kept=kept, progress=interrupt)
    rest = Counting()
    assert as_text(sweep(tasks_of(ranks), rest, kept=kept)) == whole
    assert len(rest.replayed) == RANKS - 4
    again = Counting()
    assert as_text(sweep(tasks_of(ranks), again, kept=kept)) == whole
    assert again.replayed == []


def test_half_written_results_and_other_questions_are_swept_anew(
    ranks: list[Path], tmp_path: Path
) -> None:
    kept = Kept(tmp_path / "kept")
    kept.prepare()
    whole = as_text(sweep(tasks_of(ranks), Counting(), kept=kept))
    for number, path in enumerate(sorted(kept.folder.glob("*.json"))[:3]):
        content = path.read_bytes()
        path.write_bytes(content[: len(content) * number // 3])
    anew = Counting()
    assert as_text(sweep(tasks_of(ranks), anew, kept=kept)) == whole
    assert len(anew.replayed) == 3
    for changed in ({"configs": CONFIGS[:1]}, {"release": "2.6"}):
        other = Counting()
        sweep([replace(task, **changed) for task in tasks_of(ranks)], other, kept=kept)
        assert len(other.replayed) == RANKS


def test_a_changed_file_is_swept_anew_and_a_moved_one_is_not(tmp_path: Path) -> None:
    kept = Kept(tmp_path / "kept")
    kept.prepare()
    path = write_rank(tmp_path / "a.pickle", 0)
    sweep(tasks_of([path]), Counting(), kept=kept)
    moved = Counting()
    sweep(tasks_of([path.rename(tmp_path / "b.pickle")]), moved, kept=kept)
    assert moved.replayed == []
    changed = Counting()
    sweep(tasks_of([write_rank(tmp_path / "b.pickle", 1)]), changed, kept=kept)
    assert changed.replayed == ["b.pickle"]


# The cluster's own processes outlive their sockets for a moment when they are killed; that is the point of this test.
@pytest.mark.filterwarnings("ignore:unclosed:ResourceWarning")
def test_on_a_dask_cluster_of_which_a_worker_is_killed_the_result_is_the_local_one_to_the_byte(
    tmp_path: Path,
) -> None:
    distributed = pytest.importorskip("distributed")
    paths = [write_rank(tmp_path / f"rank{r}.pickle", r, steps=400) for r in range(24)]
    tasks = tasks_of(paths)
    local = as_text(sweep(tasks, Counting()))
    killed: list[int] = []
    with (
        distributed.LocalCluster(
            n_workers=3, threads_per_worker=1, processes=True, dashboard_address=":0",
            local_directory=str(tmp_path), silence_logs=50,
        ) as cluster,
        distributed.Client(cluster, set_as_default=False) as client,
    ):  # fmt: skip

        def kill_one(done: int) -> None:
            if done == len(tasks) // 2:
                busy = [address for address, keys in client.processing().items() if keys]
                pids = client.run(os.getpid, workers=busy[:1])
                killed.extend(pids.values())
                os.kill(killed[0], signal.SIGKILL)

        over_cluster = sweep(tasks, client.get_executor(pure=False), progress=kill_one)
    assert len(killed) == 1
    assert as_text(over_cluster) == local


@pytest.mark.filterwarnings("ignore:unclosed:ResourceWarning")
def test_the_command_gives_one_table_locally_and_on_dask_and_goes_on_after_an_interrupt(
    vramdoc, ranks: list[Path], tmp_path: Path
) -> None:
    distributed = pytest.importorskip("distributed")
    command = ["compare-alloc-configs", *ranks, "--json"]
    local = vramdoc(*command, "--resume", tmp_path / "kept")
    assert local.returncode == 0, local.stderr
    kept = sorted((tmp_path / "kept").glob("*.json"))
    assert len(kept) == RANKS
    with distributed.LocalCluster(
        n_workers=1, threads_per_worker=1, processes=True, dashboard_address=":0",
        local_directory=str(tmp_path), silence_logs=50,
    ) as cluster:  # fmt: skip
        dask = vramdoc(
            *command, "--resume", tmp_path / "other", "--dask", cluster.scheduler_address
        )
    assert dask.returncode == 0, dask.stderr
    bodies = [json.loads(done.stdout) for done in (local, dask)]
    for body in bodies:
        del body["command"]
    assert json.dumps(bodies[0]) == json.dumps(bodies[1])

    for path in kept[1:]:
        path.unlink()
    written = kept[0].stat().st_mtime_ns
    arguments = [*command, "--resume", tmp_path / "kept"]
    child = subprocess.Popen(
        [sys.executable, "-m", "vramdoc", *map(str, arguments)],
        stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True, start_new_session=True,
    )  # fmt: skip
    while child.poll() is None and len(list((tmp_path / "kept").glob("*.json"))) < 2:
        time.sleep(0.01)
    os.killpg(child.pid, signal.SIGINT)
    _, talk = child.communicate(timeout=60)
    assert child.returncode in {0, 130}
    assert "Traceback" not in talk
    assert vramdoc(*arguments).stdout == local.stdout
    assert kept[0].stat().st_mtime_ns == written


def test_a_scheduler_that_is_not_there_is_said(
    ranks: list[Path], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    pytest.importorskip("distributed")
    monkeypatch.setattr(examine_sweep, "ANSWERS_WITHIN_S", 1)
    request = SweepRequest(paths=tuple(ranks), dask="tcp://127.0.0.1:1", recordings=tmp_path)
    with pytest.raises(DeviceUnavailable, match="no Dask scheduler answers at tcp"):
        sweep_configs(request)
    with pytest.raises(UsageError, match="--dask nonsense"):
        sweep_configs(replace(request, dask="nonsense://x"))


@pytest.mark.parametrize("flags", [["--search"], ["--confirm", "1"], ["--fraction", "0.5"]])
def test_what_a_sweep_does_not_do_is_refused(vramdoc, ranks: list[Path], flags: list[str]) -> None:
    done = vramdoc("compare-alloc-configs", *ranks, *flags)
    assert done.returncode == 2
    assert flags[0] in done.stderr
    one = vramdoc("compare-alloc-configs", ranks[0], "--resume", "here")
    assert one.returncode == 2


def test_a_folder_that_cannot_be_made_is_a_note_unless_it_was_named(
    ranks: list[Path], tmp_path: Path
) -> None:
    (tmp_path / "file").write_text("")
    request = SweepRequest(paths=tuple(ranks[:1]), recordings=tmp_path / "file")
    assert any("nothing is kept" in note for note in sweep_configs(request).notes)
    with pytest.raises(Exception, match="cannot write"):
        sweep_configs(replace(request, resume=tmp_path / "file" / "here"))


def test_names_are_as_short_as_they_can_be() -> None:
    folders = [Path(f"/a/rank_{n}/snapshot.pickle") for n in range(3)]
    assert distinct_names(folders) == [f"rank_{n}/snapshot.pickle" for n in range(3)]
    assert distinct_names([Path("/a/x.pickle"), Path("/b/y.pickle")]) == ["x.pickle", "y.pickle"]
    assert distinct_names([Path("/a/x.pickle")] * 2) == ["x.pickle"] * 2


def test_the_table_fits_and_says_the_same_in_every_format(
    ranks: list[Path], tmp_path: Path
) -> None:
    table = sweep_configs(SweepRequest(paths=tuple(ranks), recordings=tmp_path))
    for width in (80, 160):
        text = render_sweep(table, width=width)
        assert max(map(len, text.splitlines())) <= width
        assert "6 SNAPSHOTS" in text
        assert "rank5.pickle" in text
    assert render_sweep(table, ascii_only=True).isascii()
    body = json.loads(render_sweep_json(table))
    assert [row["config"] for row in body["configs"]] == [row.config for row in table.rows]
    assert body["configs"][0]["oom"] == 0
    markdown = render_sweep_markdown(table)
    assert markdown.count("\n| `") == len(table.rows)
    hostile = replace(table, rows=[replace(table.rows[0], config="a|b\x1b[31m<img>")])
    assert "\x1b" not in render_sweep(hostile)
    assert "| `a\\|b<img>` |" in render_sweep_markdown(hostile)
