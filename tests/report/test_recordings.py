"""The ten recordings are what their programs make, name nobody, and cover what a reader has to understand."""

from __future__ import annotations

import gzip
import json
import pickle
import re
from pathlib import Path

import pytest

from tests.report.make_recordings import MADE, NORMAL, make
from tests.report.recorded import NAMES, RECORDINGS, report_of
from vramdoc.report.contents import HEALTHY, UNDECIDED
from vramdoc.virtual_gpu.torch_build import find_torch

ANSWERS = {
    "cublas-handle": "cublas-handle-no-vram",
    "fragmentation": "fragmentation",
    "healthy": HEALTHY,
    "killed": UNDECIDED,
    "kv-growth": "kv-growth",
    "late-setting": "conf-ineffective",
    "leak": "leak",
    "resize": "resize-not-resizable",
    "true-capacity": "true-capacity",
    "two-ranks": HEALTHY,
}
"""What each program was written to do; its source says how."""


def texts(value: object) -> list[str]:
    """Every string in plain containers."""
    if isinstance(value, dict):
        return [text for pair in value.items() for part in pair for text in texts(part)]
    if isinstance(value, (list, tuple)):
        return [text for part in value for text in texts(part)]
    return [value] if isinstance(value, str) else []


def test_every_program_has_its_recording_and_its_answer() -> None:
    assert set(NAMES) == MADE.keys() == ANSWERS.keys()
    assert {name: report_of(name).primary for name in NAMES} == ANSWERS
    ranks = report_of("two-ranks").case.ranks
    assert ranks.outlier.rank == 1


@pytest.mark.parametrize("name", NAMES)
def test_a_recording_names_no_folder_clock_or_machine_of_its_maker(name: str) -> None:
    said: list[str] = []
    for path in sorted((RECORDINGS / name).rglob("*.*")):
        content = path.read_bytes()
        if path.suffix == ".json":
            manifest = json.loads(content)
            assert {key: manifest.get(key) for key in NORMAL} == dict(NORMAL)
            said += texts(manifest)
        else:
            said += texts(pickle.loads(gzip.decompress(content)))
    folders = {found for text in said for found in re.findall(r"(?<![\w./])/[\w.-]+", text)}
    assert folders <= {"/srv", "/tmp", "/usr", "/lib", "/proc"}


@pytest.mark.virtual_gpu
def test_a_recording_made_again_is_the_same_but_for_its_marks_places(tmp_path: Path) -> None:
    kept = json.loads((RECORDINGS / "kv-growth" / "manifest.json").read_bytes())
    if find_torch().version != kept["versions"]["torch"]:
        pytest.skip(f"the recordings were made with torch {kept['versions']['torch']}")
    again = make("kv-growth", tmp_path)
    for path in sorted((RECORDINGS / "kv-growth").iterdir()):
        same = timeless(again / path.name) == timeless(path)
        assert same, f"{path.name} is another now: python -m tests.report.make_recordings"


def timeless(path: Path) -> bytes:
    """A file without the places of marks among events: torch's clock has microseconds, and a mark may share one with its neighbour."""
    content = path.read_bytes()
    if path.suffix != ".json":
        return content
    return re.sub(rb'"(?:started|ended)_us": \d+', b"", content)
