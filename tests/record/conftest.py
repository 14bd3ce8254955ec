"""A program that is recorded, as a person would start it, in a folder of its own."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import textwrap
from dataclasses import dataclass
from pathlib import Path

import pytest

from vramdoc.record.device_choice import choose_device
from vramdoc.record.recording import Recording

_RECORD = """
import json, sys
from pathlib import Path
from vramdoc.record.command import record_command
options = json.loads(sys.argv[1])
ended = record_command(sys.argv[2:], root=Path(".vramdoc"), **options)
sys.exit(ended.code)
"""


@dataclass(frozen=True)
class Recorded:
    """What a recorded program printed, how it ended, and what it left."""

    code: int
    out: str
    err: str
    root: Path

    @property
    def recording(self) -> Recording:
        """The one recording."""
        (folder,) = (entry for entry in self.root.iterdir() if entry.is_dir())
        return Recording(folder)

    def observations(self, kind: str) -> list[dict]:
        return [dict(o.detail) for o in self.recording.manifest.observations if o.kind == kind]


@dataclass(frozen=True)
class Recorder:
    """Starts programs in ``folder`` under ``record_command``, in a process of their own."""

    folder: Path

    def script(self, source: str, name: str = "train.py") -> Path:
        path = self.folder / name
        path.write_text(textwrap.dedent(source))
        return path

    def environment(self, **more: str) -> dict[str, str]:
        clean = {
            name: value
            for name, value in os.environ.items()
            if not name.startswith(("VRAMDOC_", "PYTORCH_", "CUDA_", "RANK", "PYTHON"))
        }
        return {**clean, **more}

    def command(self, *argv: str | Path, **options) -> list[str]:
        return [sys.executable, "-c", _RECORD, json.dumps(options), *map(str, argv)]

    def start(self, *argv: str | Path, env: dict[str, str] | None = None, **options):
        return subprocess.Popen(
            self.command(*argv, **options),
            cwd=self.folder,
            env=self.environment(**(env or {})),
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )

    def finish(self, process: subprocess.Popen) -> Recorded:
        out, err = process.communicate(timeout=120)
        return Recorded(process.returncode, out, err, self.folder / ".vramdoc")

    def __call__(self, *argv: str | Path, env: dict[str, str] | None = None, **options) -> Recorded:
        return self.finish(self.start(*argv, env=env, **options))

    def run(self, source: str, *arguments: str, env=None, **options) -> Recorded:
        """Record a Python script on a small virtual GPU."""
        script = self.script(source)
        return self(sys.executable, script.name, *arguments, env=env, **{"gpu": "8GiB", **options})


@pytest.fixture
def record(tmp_path: Path) -> Recorder:
    return Recorder(tmp_path)


@dataclass(frozen=True)
class Virtual:
    """Runs a script on a small virtual GPU, not recorded."""

    folder: Path

    def __call__(self, source: str) -> subprocess.CompletedProcess[str]:
        device = choose_device("8GiB")
        return subprocess.run(
            [sys.executable, "-c", textwrap.dedent(source)],
            cwd=self.folder,
            env=device.environment(Recorder(self.folder).environment()),
            capture_output=True,
            text=True,
            check=False,
            timeout=120,
        )


@pytest.fixture
def virtual(tmp_path: Path) -> Virtual:
    return Virtual(tmp_path)
