"""The prepared script works before a machine with a GPU is borrowed: its steps run on a virtual device here."""

from __future__ import annotations

import importlib.util
from pathlib import Path

import pytest

from vramdoc.record.devices import real_gpus

spec = importlib.util.spec_from_file_location("validate", Path(__file__).with_name("validate.py"))
validate = importlib.util.module_from_spec(spec)
spec.loader.exec_module(validate)


@pytest.mark.virtual_gpu
def test_failures_and_model_runs_of_the_script_work_on_a_virtual_device(tmp_path: Path) -> None:
    session = validate.Session("8GiB", tmp_path)
    session.step("failures", session.failures)
    session.step("model runs", session.model_runs)
    text = "\n".join(session.lines)
    assert "Failed" not in text, text
    assert "cublas-handle-no-vram" in text
    assert text.count("exact: replayed under its own config") == 2


@pytest.mark.gpu
def test_a_real_device_agrees_with_the_simulator() -> None:
    gpus, note = real_gpus()
    if not gpus:
        pytest.skip(f"no real GPU: {note}")
    text = "\n".join(validate.run("cuda:0").lines)
    assert "Failed" not in text, text
    assert "differs first" not in text, text
