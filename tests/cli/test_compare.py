"""`compare-alloc-configs` as a user runs it: one recording, many configs, and what a rerun says of the replay."""

from __future__ import annotations

import json
import pickle
import sys
from pathlib import Path

import pytest

EXAMPLES = Path(__file__).resolve().parents[2] / "examples"


@pytest.mark.virtual_gpu
def test_a_recorded_failure_is_replayed_under_other_configs_and_a_rerun_agrees_to_the_byte(
    vramdoc,
) -> None:
    command = [
        "--gpu",
        "2GiB",
        "--json",
        "--confirm",
        "2",
        "--",
        sys.executable,
        EXAMPLES / "fragmentation.py",
    ]
    done = vramdoc("compare-alloc-configs", *command)
    assert done.returncode == 0, done.stderr
    table = json.loads(done.stdout)
    rows = {row["config"]: row for row in table["configs"]}
    assert rows[""]["oom"]
    assert not rows["expandable_segments:True"]["oom"]
    confirmed = [row for row in table["configs"] if row["rerun_exit"]]
    assert len(confirmed) == 2
    for row in confirmed:
        assert row["rerun_exit"] == "success"
        assert row["rerun_reserved_peak"] == row["reserved_peak"], "replayed and real, to the byte"


@pytest.mark.virtual_gpu
def test_without_a_target_the_newest_recording_is_taken_and_another_device_can_be_asked_about(
    vramdoc,
) -> None:
    record = vramdoc("record", "--gpu", "2GiB", "--", sys.executable, EXAMPLES / "fragmentation.py")
    assert record.returncode == 1, "the program's own exit code"
    roomy = vramdoc("compare-alloc-configs", "--gpu", "rtx4090", "--json")
    assert roomy.returncode == 0, roomy.stderr
    assert not any(row["oom"] for row in json.loads(roomy.stdout)["configs"])
    page = vramdoc("compare-alloc-configs", "--plot", "table.png").stdout
    assert "cudaMallocAsync" in page
    assert max(map(len, page.splitlines())) <= 80


def test_a_config_that_the_release_refuses_is_refused_with_torchs_reason(
    vramdoc, tmp_path: Path
) -> None:
    event = {"action": "alloc", "addr": 0x7F0000000000, "size": 512, "stream": 0, "frames": []}
    segment = {
        "device": 0, "address": 0x7F0000000000, "total_size": 2 << 20, "allocated_size": 512, "active_size": 512,
        "requested_size": 512, "stream": 0, "segment_type": "small", "segment_pool_id": (0, 0), "is_expandable": False,
        "frames": [],
        "blocks": [
            {"address": 0x7F0000000000, "size": 512, "requested_size": 512, "state": "active_allocated", "frames": []},
            {"address": 0x7F0000000200, "size": (2 << 20) - 512, "requested_size": 0, "state": "inactive", "frames": []},
        ],
    }  # fmt: skip
    first = {**event, "action": "segment_alloc", "size": 2 << 20}
    snapshot = {"segments": [segment], "device_traces": [[first, event]], "allocator_settings": {}}
    path = tmp_path / "snapshot.pickle"
    path.write_bytes(pickle.dumps(snapshot))
    assert vramdoc("compare-alloc-configs", path).returncode == 0
    done = vramdoc("compare-alloc-configs", path, "--alloc-conf", "max_split_size_mb:5")
    assert done.returncode == 2
    assert "too small" in done.stderr
    assert done.stdout == ""

    contradicted = {**snapshot, "device_traces": [[first, event, event]]}
    path.write_bytes(pickle.dumps(contradicted))
    done = vramdoc("compare-alloc-configs", path)
    assert done.returncode == 2
    assert "event 2" in done.stderr
    assert done.stdout == ""


def test_nothing_recorded_is_one_line(vramdoc) -> None:
    done = vramdoc("compare-alloc-configs")
    assert done.returncode == 2
    assert "vramdoc record" in done.stderr


@pytest.mark.parametrize("name", ["table", "table.jpg", "there.png"])
def test_a_picture_that_could_not_be_written_is_refused_before_any_work(
    vramdoc, tmp_path: Path, name: str
) -> None:
    (tmp_path / "there.png").write_bytes(b"mine")
    done = vramdoc("compare-alloc-configs", "--plot", name)
    assert done.returncode == 2
    assert done.stdout == ""
    assert name in done.stderr
    assert (tmp_path / "there.png").read_bytes() == b"mine"
