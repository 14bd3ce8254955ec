"""The Python API: free when nothing is recorded, phases under ``vramdoc record``, a recording of its own without it."""

import subprocess
import sys

import pytest

from vramdoc.record.recording import ExitKind, newest_recording


def test_nothing_is_imported_and_nothing_happens_when_not_recording(tmp_path) -> None:
    source = """
import sys, vramdoc
vramdoc.mark("train", epoch=1)
loaded = {"torch", "numpy", "pandas", "matplotlib", "pynvml"} & set(sys.modules)
with vramdoc.recording("part") as folder:
    print(folder, loaded)
"""
    # An installed torch without a GPU, or none at all: either way there is nothing to record.
    done = subprocess.run(
        [sys.executable, "-c", source], cwd=tmp_path, capture_output=True, text=True, check=True
    )
    assert (done.stdout, done.stderr) == ("None set()\n", "")
    assert list(tmp_path.iterdir()) == []


@pytest.mark.virtual_gpu
def test_marks_and_blocks_are_phases_under_record(record) -> None:
    seen = record.run(
        """
        import vramdoc
        vramdoc.mark("import")
        import torch
        vramdoc.mark("load")
        weights = torch.empty(100 << 20, dtype=torch.uint8, device="cuda")
        with vramdoc.recording("warm-up") as folder:
            more = torch.empty(50 << 20, dtype=torch.uint8, device="cuda")
        vramdoc.mark("train", epoch=1)
        del more
        print(folder)
        """
    )
    manifest = seen.recording.manifest
    assert seen.out.strip() == str(seen.recording.folder)
    assert [(p.name, (p.active_bytes or 0) >> 20, dict(p.detail)) for p in manifest.phases] == [
        ("import", 0, {}),
        ("load", 150, {}),
        ("warm-up", 150, {}),
        ("train", 100, {"epoch": 1}),
    ]
    assert all(p.ended_us is not None and p.started_us <= p.ended_us for p in manifest.phases)


@pytest.mark.virtual_gpu
def test_a_block_records_itself_without_record(virtual) -> None:
    done = virtual(
        """
        import torch, vramdoc
        before = torch.empty(10 << 20, dtype=torch.uint8, device="cuda")
        for size in (1 << 28, 1 << 40):
            try:
                with vramdoc.recording("eval"):
                    vramdoc.mark("one")
                    torch.empty(size, dtype=torch.uint8, device="cuda")
            except torch.OutOfMemoryError:
                print("raised")
        vramdoc.mark("after")
        print(torch._C._cuda_isHistoryEnabled())
        """
    )
    assert done.stdout == "raised\nFalse\n"
    failed = newest_recording(virtual.folder / ".vramdoc")
    assert failed is not None
    assert failed.oom_snapshot_path is not None
    assert failed.manifest.exit.kind is ExitKind.OUT_OF_MEMORY
    assert failed.manifest.device.kind == "virtual"
    assert [phase.name for phase in failed.manifest.phases] == ["one"]
    folders = [entry for entry in (virtual.folder / ".vramdoc").iterdir() if entry.is_dir()]
    assert len(folders) == 2
