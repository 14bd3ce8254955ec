"""Make the ten recordings again that golden outputs are rendered from: real programs, real torch, on the virtual GPU.

    python -m tests.report.make_recordings            # all, into tests/report/recordings
    python -m tests.report.make_recordings leak       # some

What differs from run to run or from machine to machine (clocks, process ids, folders, the kernel's release) is taken out here,
by ``normalised``, and nowhere else: two makes with one release of torch give the same bytes.
"""

from __future__ import annotations

import gzip
import json
import os
import pickle
import re
import shutil
import subprocess
import sys
import sysconfig
import tempfile
from bisect import bisect_left
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import vramdoc
from vramdoc.record.recording import newest_recording

HERE = Path(__file__).resolve().parent
RECORDINGS = HERE / "recordings"
REPOSITORY = HERE.parents[1]
EXAMPLES = REPOSITORY / "examples"


@dataclass(frozen=True, kw_only=True)
class Program:
    """What is run, and on what."""

    path: Path
    gpu: str = "1GiB"
    options: Sequence[str] = ()
    launcher: Sequence[str] = ("python",)


@dataclass(frozen=True, kw_only=True)
class Model:
    """A model that is given a workload."""

    shape: Sequence[str]
    gpu: str
    options: Sequence[str] = field(default=())


TORCHRUN = ("torchrun", "--nproc-per-node", "2", "--standalone")
MADE: Mapping[str, Program | Model] = {
    "fragmentation": Program(path=EXAMPLES / "fragmentation.py", gpu="2GiB"),
    "true-capacity": Program(path=EXAMPLES / "true_capacity.py", gpu="2GiB"),
    "cublas-handle": Program(path=EXAMPLES / "cublas_handle.py", gpu="8GiB"),
    "resize": Program(path=EXAMPLES / "resize_frozen_file.py", gpu="2GiB"),
    "leak": Program(path=HERE / "programs" / "leak.py"),
    "kv-growth": Program(path=HERE / "programs" / "kv_growth.py"),
    "late-setting": Program(
        path=HERE / "programs" / "late_setting.py",
        options=("--alloc-conf", "expandable_segments:True"),
    ),
    "two-ranks": Program(path=HERE / "programs" / "two_ranks.py", gpu="2GiB", launcher=TORCHRUN),
    "killed": Program(path=HERE / "programs" / "killed.py"),
    "healthy": Model(
        shape=("--shape", "tiny", "--layers", "1"), gpu="rtx4090",
        options=("--workload", "chat", "--context", "96", "--new-tokens", "2", "--sessions", "1"),
    ),
}  # fmt: skip


def make(name: str, into: Path) -> Path:
    """Run one entry of MADE and keep its recording as ``into/name``."""
    made = MADE[name]
    with tempfile.TemporaryDirectory() as text:
        folder = Path(text).resolve()
        if isinstance(made, Program):
            shutil.copy(made.path, folder)
            launch = [*made.launcher, made.path.name]
            _run(folder, "-m", "vramdoc", "record", "--gpu", made.gpu, *made.options, "--", *launch)
        else:
            _run(folder, str(EXAMPLES / "make_model.py"), *made.shape, "tiny.safetensors")
            asked = ("--gpu", made.gpu, "--trials", "0", *made.options)
            _run(folder, "-m", "vramdoc", "diagnose", "tiny.safetensors", *asked)
        recording = newest_recording(folder / ".vramdoc")
        assert recording is not None, f"{name} left nothing"
        shutil.rmtree(into / name, ignore_errors=True)
        for manifest in sorted(recording.folder.rglob("manifest.json")):
            kept = into / name / manifest.parent.relative_to(recording.folder)
            kept.mkdir(parents=True)
            for file, content in normalised(manifest.parent, run_in=folder).items():
                (kept / file).write_bytes(content)
    return into / name


def _run(folder: Path, *arguments: str) -> None:
    """Run Python in ``folder``; that the program fails is what most of them are for."""
    clean = {
        name: value
        for name, value in os.environ.items()
        if not name.startswith(("VRAMDOC_", "PYTORCH_", "CUDA_", "RANK"))
    }
    tools = f"{Path(sys.executable).parent}{os.pathsep}{clean['PATH']}"
    environment = {**clean, "PATH": tools, "PYTHONPATH": str(REPOSITORY), "OMP_NUM_THREADS": "1"}
    subprocess.run(
        [sys.executable, *arguments], cwd=folder, env=environment, check=False, capture_output=True
    )


STARTED_US = 1_790_000_000_000_000
EVENT_US = 1_000
"""Events come a millisecond apart, whatever the machine's clock said."""
NORMAL: Mapping[str, Any] = {
    "pid": 4242,
    "created": "2026-09-21T14:13:20+00:00",
    "duration_s": 1.0,
    "platform": {"system": "Linux", "machine": "x86_64", "release": "6.1"},
}


def normalised(folder: Path, *, run_in: Path) -> dict[str, bytes]:
    """The files of one process's recording without what is this machine's or this moment's; no program output."""
    clock = _Clock(folder)
    places = _Places(run_in)
    manifest = json.loads((folder / "manifest.json").read_bytes())
    process = str(manifest.get("pid", ""))
    manifest = {**places.of(clock.of(manifest)), **NORMAL}
    manifest["versions"] = {**manifest["versions"], "python": "3.11", "numpy": "2"}
    for place, seen in enumerate(manifest["observations"]):
        seen["time_us"] = STARTED_US + place  # guards look at another clock than the trace
    text = json.dumps(manifest, indent=1, ensure_ascii=False)
    text = text.replace(f"rocess {process}", f"rocess {NORMAL['pid']}")
    files = {"manifest.json": f"{text}\n".encode()}
    for path in sorted(folder.glob("snapshot*.pickle")):
        snapshot = places.of(clock.of(pickle.loads(path.read_bytes())))
        files[path.name] = gzip.compress(pickle.dumps(snapshot, protocol=4), mtime=0)
    return files


def _of_the_program(trace: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """The events without the recorder's own snapshots, which come by the clock."""
    return [event for event in trace if event["action"] != "snapshot"]


class _Clock:
    """Times as the order they say: an event's is its place in the trace, a mark's the place it fell between."""

    def __init__(self, folder: Path) -> None:
        traces = [
            trace
            for path in sorted(folder.glob("snapshot*.pickle"))
            for trace in pickle.loads(path.read_bytes())["device_traces"]
        ]
        longest = _of_the_program(max(traces, key=len, default=[]))
        self._times = [event["time_us"] for event in longest]

    def of(self, value: Any, key: str = "") -> Any:
        """``value`` with every time in it replaced."""
        if isinstance(value, dict):
            return {name: self.of(part, name) for name, part in value.items()}
        if isinstance(value, list):
            if key == "device_traces":
                return [
                    [self._event(event, at) for at, event in enumerate(_of_the_program(trace))]
                    for trace in value
                ]
            return [self.of(part) for part in value]
        if key in {"time_us", "started_us", "ended_us"} and isinstance(value, int):
            return STARTED_US + EVENT_US * bisect_left(self._times, value) - EVENT_US // 2
        return value

    def _event(self, event: dict[str, Any], at: int) -> dict[str, Any]:
        return {**event, "time_us": STARTED_US + EVENT_US * at}


class _Places:
    """Folders of this machine as folders of nobody's; equal stacks stay one object, as torch leaves them."""

    def __init__(self, run_in: Path) -> None:
        library = sysconfig.get_paths()
        self._names = {
            str(run_in): "/srv/job",
            str(Path(vramdoc.__file__).parents[1]): "/srv/python3.11/site-packages",
            library["purelib"]: "/srv/python3.11/site-packages",
            library["stdlib"]: "/srv/python3.11",
        }
        longest = sorted(self._names, key=len, reverse=True)
        made_up = re.escape(tempfile.gettempdir()) + r"/tmp\w+(?=/)"
        self._pattern = re.compile("|".join([*map(re.escape, longest), made_up]))
        self._stacks: dict[str, Any] = {}

    def of(self, value: Any, key: str = "") -> Any:
        """``value`` with every path in it replaced."""
        if isinstance(value, str):
            return self._pattern.sub(lambda match: self._names.get(match[0], "/tmp"), value)
        if isinstance(value, dict):
            return {name: self.of(part, name) for name, part in value.items()}
        if isinstance(value, (list, tuple)):
            moved = type(value)(self.of(part) for part in value)
            return self._stacks.setdefault(repr(moved), moved) if key == "frames" else moved
        return value


def main() -> None:
    """Make what is named, or all."""
    for name in sys.argv[1:] or MADE:
        print(name, "->", ", ".join(
            f"{path.name} {path.stat().st_size}" for path in sorted(make(name, RECORDINGS).rglob("*")) if path.is_file()
        ))  # fmt: skip


if __name__ == "__main__":
    main()
