"""Names of files, frames and settings full of terminal escapes: no command lets one steer a terminal or order a CI runner."""

import pickle
import re
import sys
from pathlib import Path

import pytest

from tests.evidence.programs import played

pytestmark = pytest.mark.skipif(sys.platform == "win32", reason="such names cannot be there")

NAME = "a\x1b[31m\x9b2J\n::error::\u202e<b>"
STEERS = re.compile("[\x00-\x08\x0b-\x1f\x7f-\x9f\u200b\u202a-\u202e\u2066-\u2069]")
COMMANDS = {
    "diagnose": ("diagnose", f"{NAME}.pickle", "-v"),
    "diff": ("diff", f"{NAME}.pickle", "b.pickle"),
    "compare": ("compare-alloc-configs", f"{NAME}.pickle"),
    "several": ("compare-alloc-configs", f"{NAME}.pickle", "b.pickle"),
    "explain": ("explain", f"max_split_size_mb:{NAME}"),
    "lint": ("lint", f"{NAME}.py"),
    "not there": ("diagnose", f"no-{NAME}"),
    "record": ("record", "--", f"no-{NAME}"),
}


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Two snapshots and a script, whose frames, functions and file names are hostile."""
    folder = tmp_path_factory.mktemp("hostile")
    snapshot = played(1)[0].snapshot()
    frames = [{"filename": f"{NAME}.py", "name": NAME, "line": 3}]
    records = [event for trace in snapshot["device_traces"] for event in trace]
    records += [block for segment in snapshot["segments"] for block in segment["blocks"]]
    for record in records:
        record["frames"] = frames
    for name in (NAME, "b"):
        (folder / f"{name}.pickle").write_bytes(pickle.dumps(snapshot))
    (folder / f"{NAME}.py").write_text("x = x[\n")
    return folder


@pytest.mark.parametrize("command", COMMANDS)
def test_no_command_passes_on_what_steers(command: str, folder: Path, vramdoc) -> None:
    done = vramdoc(*COMMANDS[command], cwd=folder)
    said = done.stdout + done.stderr
    assert said
    assert "Traceback" not in said
    assert not STEERS.search(said)
    assert not [line for line in said.splitlines() if line.lstrip().startswith(("::", "##["))]
