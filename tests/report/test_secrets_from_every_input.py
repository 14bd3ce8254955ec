"""Secrets planted in a crash text, a snapshot and a recording on disk: the whole pipeline, every format, pictures and tables."""

from __future__ import annotations

import pickle
from dataclasses import replace
from pathlib import Path

import pytest

from tests.report.test_privacy import PLACES, SECRETS, TEXT
from vramdoc.examine.pipeline import examine
from vramdoc.examine.request import DiagnoseRequest
from vramdoc.examine.target import recognise
from vramdoc.record.recording import Exit, ExitKind, Manifest, Observation, write_manifest
from vramdoc.report.contents import Report
from vramdoc.report.formats import FORMATS
from vramdoc.report.frames import exported
from vramdoc.report.plots import plot_report
from vramdoc.report.privacy import redact
from vramdoc.report.to_terminal import render_terminal

MESSAGE = (
    "torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 2.00 GiB. GPU 0 has a total capacity of 23.65 GiB of which "
    "1.00 GiB is free. Process 881 has 22.00 GiB memory in use. Of the allocated memory 20.00 GiB is allocated by PyTorch, and "
    "1.50 GiB is reserved by PyTorch but unallocated."
)
TRACEBACK = f"""{TEXT}
Traceback (most recent call last):
  File "{PLACES[0]}", line 12, in <module>
    answer = model.generate("{SECRETS["prompt"]}", api_key="{SECRETS["openai"]}")
  File "{PLACES[1]}", line 40, in generate
    cache = torch.cat([cache, new])  # {SECRETS["email"]}
{MESSAGE}
"""
MIB = 1 << 20
BASE = 0x7F0000000000


def snapshot() -> dict[str, object]:
    """One full segment and the failure, every frame in somebody's home folder."""
    frames = [{"filename": place, "line": 7, "name": "forward"} for place in PLACES]
    block = {
        "address": BASE,
        "size": 16 * MIB,
        "requested_size": 16 * MIB,
        "state": "active_allocated",
        "frames": frames,
    }
    idle = {
        "address": BASE + 16 * MIB,
        "size": 4 * MIB,
        "requested_size": 0,
        "state": "inactive",
        "frames": [],
    }
    segment = {
        "device": 0, "address": BASE, "total_size": 20 * MIB, "allocated_size": 16 * MIB, "active_size": 16 * MIB,
        "requested_size": 16 * MIB, "stream": 0, "segment_type": "large", "segment_pool_id": (0, 0), "is_expandable": False,
        "frames": frames, "blocks": [block, idle],
    }  # fmt: skip
    event = {"stream": 0, "time_us": 1, "frames": frames}
    trace = [
        {"action": "segment_alloc", "addr": BASE, "size": 20 * MIB, **event},
        {"action": "alloc", "addr": BASE, "size": 16 * MIB, **event},
        {"action": "oom", "addr": 3 * MIB, "size": 20 * MIB, "device_free": 3 * MIB, **event},
    ]
    settings = {
        "PYTORCH_CUDA_ALLOC_CONF": "",
        "expandable_segments": False,
        "LAST_USER": SECRETS["variable"],
    }
    return {"segments": [segment], "device_traces": [trace], "allocator_settings": settings}


def manifest() -> Manifest:
    """A recording's manifest as a careless or hostile machine would have written it."""
    return Manifest(
        created="2026-12-01T10:15:00Z", tool_version="1", alloc_conf="",
        versions={"torch": "2.14.1", "python": "3.11"}, platform={"system": "Linux", "node": SECRETS["host"]},
        environment={"HF_TOKEN": SECRETS["hf"], "MY_SERVICE_SETTING": SECRETS["variable"], "USER": SECRETS["user"]},
        workload={"name": "script", "line": f"{PLACES[0]} --prompt '{SECRETS['prompt']}' --token {SECRETS['github']}"},
        target={"kind": "command", "name": PLACES[0]},
        exit=Exit(kind=ExitKind.OUT_OF_MEMORY, code=1, exception_type="OutOfMemoryError", message=MESSAGE, traceback=TRACEBACK),
        observations=(
            Observation(kind="resize", time_us=1, detail={"operation": "resize_", "tensor": "t", "file": PLACES[1], "line": 3,
                        "origin": {"kind": "file", "path": PLACES[0]}, "wanted_bytes": 10, "owned_bytes": 5}),
        ),
        notes=(TEXT,),
    )  # fmt: skip


def crash_text(folder: Path) -> Path:
    """A pasted log."""
    path = folder / "crash.log"
    path.write_text(TRACEBACK, encoding="utf-8")
    return path


def snapshot_file(folder: Path) -> Path:
    """A snapshot from another machine."""
    path = folder / "snapshot.pickle"
    path.write_bytes(pickle.dumps(snapshot()))
    return path


def recording(folder: Path) -> Path:
    """A recording from another machine."""
    path = folder / "20261201-101500-train"
    path.mkdir()
    write_manifest(path, manifest())
    for name in ("snapshot.pickle", "snapshot-oom.pickle"):
        (path / name).write_bytes(pickle.dumps(snapshot()))
    (path / "output.log").write_text(TRACEBACK, encoding="utf-8")
    return path


KINDS = {"crash text": crash_text, "snapshot": snapshot_file, "recording": recording}


@pytest.fixture(params=KINDS)
def report(request: pytest.FixtureRequest, tmp_path: Path) -> Report:
    """What the pipeline makes of one kind of input that lies in somebody's home folder."""
    folder = tmp_path / "home" / SECRETS["user"] / SECRETS["client"]
    folder.mkdir(parents=True)
    path = KINDS[request.param](folder)
    found = recognise(str(path))
    command = f"vramdoc diagnose {path} --prompt '{SECRETS['prompt']}'"
    made = examine(DiagnoseRequest(target=found, trials=0, command=command))
    return replace(made, notes=(*made.notes, TEXT))


def leaked(text: str) -> dict[str, str]:
    """Each secret found, with what stands around it."""
    return {
        name: text[max(0, text.index(s) - 80) :][:160] for name, s in SECRETS.items() if s in text
    }


@pytest.mark.parametrize("form", sorted(FORMATS))
def test_no_format_of_any_input_shows_a_secret(report: Report, form: str) -> None:
    clean = redact(report)
    text = FORMATS[form].render(clean)
    if form == "terminal":
        text += render_terminal(clean, width=200, verbose=True)
    assert not leaked(text)


def test_no_picture_and_no_table_shows_a_secret(report: Report) -> None:
    clean = redact(report)
    for files in (plot_report(clean), exported(clean)):
        for name, content in files.items():
            if not name.endswith(".png"):
                assert not leaked(content.decode("utf-8"))


def test_the_input_did_hold_secrets_and_shows_them_when_asked(report: Report) -> None:
    shown = FORMATS["json"].render(redact(report, include_private=True))
    assert len(leaked(shown)) > len(SECRETS) // 2
