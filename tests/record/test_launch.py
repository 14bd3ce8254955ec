"""A workload in a child: a recording however it ends, and nothing at all where it cannot be kept."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from vramdoc.errors import StorageProblem, UnreadableInput, UsageError
from vramdoc.record import launch, storage
from vramdoc.record.launch import run_workload
from vramdoc.record.recording import ExitKind, open_recording
from vramdoc.snapshot.reader import read_snapshot
from vramdoc.workload.spec import WorkloadSpec

pytestmark = pytest.mark.virtual_gpu


def spec(model: Path, **changes) -> WorkloadSpec:
    options = {"name": "chat", "context": 64, "sessions": 2, "new_tokens": 4, **changes}
    return WorkloadSpec(target=str(model), **options)


def test_a_workload_that_fits(tiny_model: Path, tmp_path: Path) -> None:
    said: list[str] = []
    recording = run_workload(
        spec(tiny_model),
        gpu="8GiB",
        alloc_conf="expandable_segments:True",
        root=tmp_path,
        foreign_bytes=1 << 30,
        progress=said.append,
    )
    manifest = open_recording(recording.folder).manifest
    assert (manifest.exit.kind, manifest.exit.code) == (ExitKind.SUCCESS, 0)
    assert manifest.alloc_conf == "expandable_segments:True"
    assert (manifest.device.kind, manifest.device.key) == ("virtual", "8GiB")
    assert manifest.device.foreign_bytes == 1 << 30
    assert {"torch", "python", "cuda"} <= manifest.versions.keys()
    assert any("cuDNN" in note for note in manifest.notes)
    assert said[0] == "load"
    # The whole run's peak is the largest of its phases' peaks: resetting them lost nothing.
    assert manifest.statistics["active_bytes.all.peak"] == max(
        phase.active_peak_bytes for phase in manifest.phases
    )
    assert all(
        phase.active_bytes <= phase.active_peak_bytes <= phase.reserved_peak_bytes
        for phase in manifest.phases
    )
    snapshot = read_snapshot(recording.snapshot_path)
    assert snapshot.alloc_conf == "expandable_segments:True"
    assert any(segment.is_expandable for segment in snapshot.segments)
    assert len(snapshot.traces[0]) > 50


def test_nothing_of_the_persons_folders_is_in_the_manifest(
    tiny_model: Path, tmp_path: Path
) -> None:
    recording = run_workload(spec(tiny_model, name="load"), gpu="8GiB", root=tmp_path)
    text = (recording.folder / "manifest.json").read_text()
    assert str(tiny_model.parent) not in text
    assert str(Path.home()) not in text
    assert json.loads(text)["target"] == {"kind": "model", "name": tiny_model.name}


def test_a_workload_that_does_not_fit(tiny_model: Path, tmp_path: Path) -> None:
    recording = run_workload(
        spec(tiny_model, context=8192, sessions=64, new_tokens=8), gpu="1GiB", root=tmp_path
    )
    manifest = recording.manifest
    assert manifest.exit.kind is ExitKind.OUT_OF_MEMORY
    assert "CUDA out of memory" in manifest.exit.message
    assert recording.oom_snapshot_path is not None
    assert read_snapshot(recording.oom_snapshot_path).traces[0][-1].action == "oom"
    assert "OutOfMemoryError" in recording.output_path.read_text()


def test_time_that_runs_out_leaves_a_recording_too(tiny_model: Path, tmp_path: Path) -> None:
    recording = run_workload(
        spec(tiny_model, context=8192, sessions=8, new_tokens=1000),
        gpu="24GiB",
        root=tmp_path,
        timeout=8,
    )
    manifest = recording.manifest
    assert manifest.exit.kind is ExitKind.INTERRUPTED
    assert "8 s" in manifest.exit.message


def test_a_child_that_is_killed_leaves_a_recording_too(
    tiny_model: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    killer = (
        "import os; import vramdoc.workload.run as w; "
        "w.run = lambda spec, journal, load=[]: (load.append(journal.phase('load')), load[0].__enter__(), os.kill(os.getpid(), 9)); "
    )
    monkeypatch.setattr(
        launch, "_BOOTSTRAP", launch._BOOTSTRAP.replace("from ", killer + "from ", 1)
    )
    recording = run_workload(spec(tiny_model), gpu="8GiB", root=tmp_path)
    manifest = recording.manifest
    assert (manifest.exit.kind, manifest.exit.signal) == (ExitKind.SIGNAL, 9)
    assert [(phase.name, phase.ended_us) for phase in manifest.phases] == [("load", None)]


@pytest.mark.parametrize(
    ("options", "error"),
    [
        ({"alloc_conf": "max_split_size_mb:1"}, UsageError),
        ({"alloc_conf": "nonsense:1"}, UsageError),
        ({"gpu": "voodoo2"}, UsageError),
    ],
)
def test_what_cannot_be_asked_for_starts_nothing(
    tiny_model: Path, tmp_path: Path, options: dict[str, str], error: type[Exception]
) -> None:
    with pytest.raises(error):
        run_workload(spec(tiny_model), **{"gpu": "8GiB", "root": tmp_path / "r", **options})
    assert not (tmp_path / "r").exists()


def test_an_error_of_the_workload_itself_comes_back_as_it_was(tmp_path: Path) -> None:
    model = tmp_path / "model.safetensors"
    model.write_bytes(b"\xff" * 64)
    with pytest.raises(UnreadableInput):
        run_workload(spec(model), gpu="8GiB", root=tmp_path / "r")
    assert [entry.name for entry in (tmp_path / "r").iterdir()] == [".gitignore"]


def test_no_room_is_said_before_anything_starts(
    tiny_model: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(storage.shutil, "disk_usage", lambda _path: os_usage(free=1000))
    with pytest.raises(StorageProblem, match="no room"):
        run_workload(spec(tiny_model), gpu="8GiB", root=tmp_path / "r")
    assert not (tmp_path / "r").exists()


def os_usage(free: int) -> "storage.shutil._ntuple_diskusage":
    return storage.shutil._ntuple_diskusage(total=free, used=0, free=free)


def test_a_disk_that_fills_up_leaves_nothing(tiny_model: Path, tmp_path: Path) -> None:
    source = """
import resource, sys
from pathlib import Path
from vramdoc.errors import StorageProblem
from vramdoc.record.launch import run_workload
from vramdoc.workload.spec import WorkloadSpec
resource.setrlimit(resource.RLIMIT_FSIZE, (20_000, 20_000))
try:
    run_workload(WorkloadSpec(target=sys.argv[1], context=64, sessions=1, new_tokens=2), gpu="8GiB", root=Path("r"))
except StorageProblem as problem:
    print(str(problem).splitlines())
"""
    run_workload(spec(tiny_model, name="load"), gpu="8GiB", root=tmp_path / "compiled-by-now")
    done = subprocess.run(
        [sys.executable, "-c", source, str(tiny_model)],
        cwd=tmp_path,
        capture_output=True,
        text=True,
        check=True,
    )
    assert "snapshot.pickle" in done.stdout
    assert done.stdout.count("cannot write") == 1
    assert [entry.name for entry in (tmp_path / "r").iterdir()] == [".gitignore"]


def test_a_strangers_module_beside_the_model_is_not_run(
    tiny_model: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("torch", "json", "safetensors", "sitecustomize", "vramdoc"):
        (tmp_path / f"{name}.py").write_text("raise SystemExit('a stranger ran')")
    monkeypatch.chdir(tmp_path)
    recording = run_workload(spec(tiny_model, name="load"), gpu="8GiB", root=Path("r"))
    assert recording.manifest.exit.kind is ExitKind.SUCCESS


def test_a_parent_that_is_killed_leaves_no_child(tiny_model: Path, tmp_path: Path) -> None:
    source = """
import sys
from pathlib import Path
from vramdoc.record.launch import run_workload
from vramdoc.workload.spec import WorkloadSpec
run_workload(WorkloadSpec(target=sys.argv[1], context=8192, sessions=64, new_tokens=4000), gpu="80GiB", root=Path("r"),
             progress=lambda sentence: print(sentence, flush=True))
"""
    parent = subprocess.Popen(
        [sys.executable, "-c", source, str(tiny_model)],
        cwd=tmp_path,
        stdout=subprocess.PIPE,
        text=True,
    )
    assert parent.stdout.readline() == "load\n"
    children = Path(f"/proc/{parent.pid}/task/{parent.pid}/children").read_text().split()
    parent.kill()
    parent.communicate()
    for child in children:
        for _ in range(200):
            if not Path(f"/proc/{child}").exists():
                break
            os.system("sleep 0.05")
        assert not Path(f"/proc/{child}").exists()
