"""Figures that a program prints of its own memory: a steady rise is a leak, anything else says nothing."""

from __future__ import annotations

import pytest

from tests.diagnose.builders import leading, message, text_case, verdict
from vramdoc.diagnose.logged import rise
from vramdoc.evidence.case import Case

FULL = message(requested=0.02, total=24, free=0.01, allocated=22.4, unallocated=0.02).oom
LINES = {
    "a metric logger": "Evaluation  [{n:4d}/5000]  eta: 0:03:42  time: 0.0488  data: 0.0003  max mem: {mib}",
    "detectron2": "[05/01 12:00:00 d2.utils.events]: eta: 1:02:03  iter: {n}  total_loss: 0.9  lr: 0.02  max_mem: {mib}M",
    "mmcv": "2026-01-02 - mmdet - INFO - Epoch [1][{n}/5000]\tlr: 1.9e-03, eta: 4:05, time: 0.4, memory: {mib}, loss: 1.2",
    "mmengine": "01/02 12:00:00 - mmengine - INFO - Epoch(val)  [{n}/5000]    eta: 0:01:03  time: 0.08  data_time: 0.01  memory: {mib}  ",
    "a line of its own": "step {n} memory allocated: {mib} MiB",
}


def log(line: str, figures: list[int]) -> Case:
    printed = "\n".join(line.format(n=n, mib=mib) for n, mib in enumerate(figures))
    assert FULL is not None
    return text_case(f"{printed}\ntorch.OutOfMemoryError: {FULL.text}")


@pytest.mark.parametrize("line", LINES.values(), ids=LINES)
def test_a_figure_that_rises_on_every_line_is_a_leak(line: str):
    case = log(line, list(range(9_000, 22_000, 250)))
    assert leading(case) == "leak"
    assert "from 8.79 GiB to 21.24 GiB in 52 of its lines" in verdict(case, "leak").summary


@pytest.mark.parametrize("line", LINES.values(), ids=LINES)
def test_a_peak_that_rises_now_and_then_is_none(line: str):
    peaks = [mib for mib in range(9_000, 22_000, 1_000) for _ in range(10)]
    assert leading(log(line, peaks)) == "true-capacity"


def test_a_peak_that_settles_after_the_first_steps_is_none():
    case = log(LINES["mmcv"], [3_000, 9_000, 14_000, 21_000, 21_500, *[22_000] * 20])
    assert leading(case) == "true-capacity"


def test_more_lines_than_are_kept_still_tell_the_last_figure():
    figures = list(range(2_000, 22_000, 20))
    crash = log(LINES["a metric logger"], figures).crash
    assert crash is not None
    found = rise(crash)
    assert found is not None
    assert (found.first.value, found.last.value) == (figures[0] << 20, figures[-1] << 20)


def test_two_figures_of_a_line_are_told_apart():
    line = "step {n} memory allocated: {mib} MiB, memory reserved: 23000 MiB"
    assert leading(log(line, list(range(9_000, 22_000, 250)))) == "leak"


def test_figures_in_bytes_are_read_as_such():
    printed = "\n".join(f"memory allocated: {n << 28}\nbatch {n}" for n in range(20, 80))
    assert FULL is not None
    case = text_case(f"{printed}\ntorch.OutOfMemoryError: {FULL.text}")
    assert leading(case) == "leak"
    assert "from 5.00 GiB to 19.75 GiB" in verdict(case, "leak").summary


def test_host_memory_is_not_mistaken_for_the_devices():
    line = "step {n} host rss: {mib} MiB"
    assert leading(log(line, list(range(9_000, 22_000, 250)))) == "true-capacity"
