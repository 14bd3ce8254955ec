"""`capacity` as a user runs it: a grid whose border really ran, a statement, and its later check."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

REPOSITORY = Path(__file__).resolve().parents[2]


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("capacity") / "model.safetensors"
    make = [sys.executable, REPOSITORY / "examples" / "make_model.py", "--shape", "tiny", path]
    subprocess.run(make, check=True, capture_output=True)
    return path


@pytest.mark.virtual_gpu
def test_a_statement_asks_its_question_again_and_does_not_hold_on_a_smaller_device(
    vramdoc, model: Path, tmp_path: Path
) -> None:
    grid = ["--context", "8k", "--sessions", "1,4", "--no-alternatives"]
    changed = {
        "--gpu": "2GiB", "--batch": "2", "--dtype": "float16", "--seed": "3", "--cache": "chunked", "--foreign": "64MiB",
        "--alloc-conf": "max_split_size_mb:200",
    }  # fmt: skip
    options = [part for item in changed.items() for part in item]
    done = vramdoc("capacity", model, *options, *grid, "--json")
    assert done.returncode == 0, done.stderr
    answer = json.loads(done.stdout)
    assert {"kv_bytes_per_token", "grid", "statement"} <= answer.keys()
    assert [(cell["context"], cell["sessions"], cell["fits"]) for cell in answer["grid"]] == [
        (8192, 1, True),
        (8192, 4, True),
    ]
    [border] = answer["statement"]["supported"]
    assert border["sessions"] > 4

    kept = tmp_path / "statement.json"
    kept.write_text(json.dumps(answer["statement"]))
    smaller = vramdoc("capacity", model, "--gpu", "1GiB", "--check", kept, "--json")
    assert smaller.returncode == 1, smaller.stderr
    found = json.loads(smaller.stdout)
    assert not found["holds"]
    # no option was given again but --gpu, so nothing else may have changed
    assert [item["what"] for item in found["conditions"]] == ["device", "device_bytes"]
    assert "its doing" in found["credit"]


@pytest.mark.virtual_gpu
def test_serving_reports_admission_and_what_cleanup_returned(vramdoc, model: Path) -> None:
    options = [
        "--workload",
        "serve",
        "--arrivals",
        "8",
        "--sessions",
        "2",
        "--context",
        "128",
        "--json",
    ]
    done = vramdoc("capacity", model, "--gpu", "2GiB", *options)
    assert done.returncode == 0, done.stderr
    served = json.loads(done.stdout)
    assert served["arrived"] == 8
    assert served["most_open"] <= 2
    assert served["returned_bytes"] > 0
    again = json.loads(vramdoc("capacity", model, "--gpu", "2GiB", *options).stdout)
    assert served == again, "the same arrivals every time"


@pytest.mark.parametrize(
    "arguments",
    [
        ("--context", "0"),
        ("--sessions", "-1"),
        ("--context", "1"),
        ("--batch", "0"),
        ("--check", "nowhere.json"),
        ("--cache", "frozen"),
        ("--workload", "dance"),
        ("--lengths", "fixed:8,8"),
        ("--arrivals", "3"),
        ("--workload", "serve", "--plot", "pictures"),
        ("--workload", "serve", "--check", "statement.json"),
        ("--workload", "serve", "--lengths", "fixed:8"),
        ("--workload", "serve", "--lengths", "nowhere.csv"),
        ("--workload", "serve", "--sessions", "0"),
        ("--workload", "serve", "--batch", "0"),
        ("--check", "nowhere.json", "--context", "2k"),
        ("--foreign", "much"),
        ("--alloc-conf", "split_everything:1"),
    ],
)
def test_bad_sizes_are_one_line(vramdoc, model: Path, arguments: tuple[str, ...]) -> None:
    done = vramdoc("capacity", model, "--gpu", "2GiB", *arguments)
    assert done.returncode == 2, done
    assert done.stdout == ""
    assert "Traceback" not in done.stderr


def test_a_statement_of_a_newer_schema_is_refused(vramdoc, model: Path, tmp_path: Path) -> None:
    kept = tmp_path / "future.json"
    kept.write_text(json.dumps({"schema_version": 99}))
    done = vramdoc("capacity", model, "--gpu", "2GiB", "--check", kept)
    assert done.returncode == 2
    assert "schema 99" in done.stderr
