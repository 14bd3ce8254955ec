"""A recorded process killed at each of its writes leaves nothing half-written that a reader would take for whole.

One process imports torch once and forks for each point; the child counts the calls by which anything reaches the disk and kills
itself before, or in the middle of, the one that was asked for.
"""

import subprocess
import sys
import textwrap
from pathlib import Path

import pytest

from vramdoc.record.aftermath import complete_run
from vramdoc.record.device_choice import choose_device
from vramdoc.record.ending import OomKills
from vramdoc.record.recording import Recording, is_recording
from vramdoc.snapshot.reader import read_snapshot

pytestmark = pytest.mark.virtual_gpu

PROGRAM = """
import json, os, signal, sys
from pathlib import Path
import torch
from vramdoc.record import manifest_json, storage
from vramdoc.record.inside import script as script_module
from vramdoc.record.inside import survey
from vramdoc.record.settings import RecordingSettings
import vramdoc

survey.MOST_OBJECTS = 0  # what it looks at is tested elsewhere; here it is only written

CALLS = ("open", "write", "fsync", "replace", "mkdir", "unlink", "close")

def kill_at(point):
    # Counts every call; at the point, a write is cut in half, anything else does not happen.
    seen = [0]
    def counting(name, original):
        def call(*arguments, **options):
            seen[0] += 1
            if seen[0] == point:
                if name == "write":
                    original(arguments[0], bytes(arguments[1])[: len(arguments[1]) // 2])
                os.kill(os.getpid(), signal.SIGKILL)
            return original(*arguments, **options)
        return call
    for name in CALLS:
        setattr(os, name, counting(name, getattr(os, name)))
    Path.replace = lambda self, target: os.replace(self, target)
    Path.unlink = lambda self, missing_ok=False: os.unlink(self) if self.exists() else None
    Path.mkdir = lambda self, mode=0o777, parents=False, exist_ok=False: os.mkdir(self, mode) if not self.is_dir() else None
    return seen

def work():
    vramdoc.mark("load")
    kept = [torch.empty(1 << 28, dtype=torch.uint8, device="cuda")]
    vramdoc.mark("run")
    recorder = script_module_state.recorder
    recorder.observe("resize", line=3)
    recorder.checkpoint()
    try:
        torch.empty(1 << 40, dtype=torch.uint8, device="cuda")
    except torch.OutOfMemoryError:
        recorder.note("caught")
    recorder.checkpoint()
    script_module_state._finish(None)

root = Path(sys.argv[1])
point = 0
while True:
    point += 1
    pid = os.fork()
    if pid == 0:
        settings = RecordingSettings(folder=str(root / f"run-{point}"), subject="train.py", max_entries=1000, stacks="python", every_s=None)
        script_module_state = script_module.Script(settings)
        torch.cuda._lazy_call(script_module_state.start)
        seen = kill_at(point)
        work()
        os._exit(0)
    status = os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])
    if status == 0:
        break
    assert status == -9, status
print(point)
"""


def test_killed_at_every_write_nothing_half_written_is_taken_for_whole(tmp_path: Path) -> None:
    device = choose_device("8GiB")
    import os

    done = subprocess.run(
        [sys.executable, "-c", textwrap.dedent(PROGRAM), str(tmp_path)],
        env=device.environment(
            {k: v for k, v in os.environ.items() if not k.startswith("VRAMDOC")}
        ),
        capture_output=True,
        text=True,
        check=False,
        timeout=300,
    )
    assert done.returncode == 0, done.stderr
    points = int(done.stdout)
    assert points > 40  # the loop went through the whole life of a recording
    whole = 0
    nothing = OomKills(group=None, host=None)
    for point in range(1, points):
        folder = tmp_path / f"run-{point}"
        before = {path.name for path in folder.iterdir()} if folder.is_dir() else set()
        if is_recording(folder):
            whole += 1
            check(Recording(folder))
        else:
            assert not before & {"snapshot.pickle", "snapshot-oom.pickle"}
        recording = complete_run(folder, pid=0, status=-9, before=nothing)
        if recording is None:
            assert not folder.exists()
            continue
        check(recording)
        left = {path.name for path in folder.iterdir()}
        assert left <= {
            "manifest.json",
            "snapshot.pickle",
            "snapshot-oom.pickle",
            "holders.json",
            "holders-oom.json",
        }
        assert left >= before & {"snapshot.pickle", "snapshot-oom.pickle"}
    assert whole > points // 2
    check(Recording(tmp_path / f"run-{points}"))


def check(recording: Recording) -> None:
    """Everything that is there can be read, and says nothing that did not happen."""
    manifest = recording.manifest
    assert {phase.name for phase in manifest.phases} <= {"load", "run"}
    assert {o.kind for o in manifest.observations} <= {"resize", "oom"}
    for path in (recording.snapshot_path, recording.oom_snapshot_path):
        if path is not None:
            assert read_snapshot(path).problems == ()
