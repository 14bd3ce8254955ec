"""The headline: what the primary verdict says, or how the program ended where no verdict holds."""

from __future__ import annotations

from dataclasses import replace

import pytest

from tests.diagnose.builders import manifest, message, recording, text_case
from vramdoc.diagnose.engine import judge, primary
from vramdoc.evidence.case import Case
from vramdoc.examine.wording import compose
from vramdoc.record.manifest import Exit, ExitKind
from vramdoc.report.contents import Report


def report_on(case: Case) -> Report:
    verdicts = judge(case)
    return compose(
        case, verdicts=verdicts, primary=primary(verdicts, case), prescriptions=[], command="", recording=""
    )  # fmt: skip


def ended(ending: Exit, *, kind: str = "real") -> Case:
    made = manifest(ExitKind.EXCEPTION)
    assert made.device is not None
    return recording(replace(made, exit=ending, device=replace(made.device, kind=kind)))


def test_the_primary_verdict_leads():
    report = report_on(message(requested=1, total=24, free=0.1, allocated=22.5, unallocated=0.1))
    assert report.leading is not None
    assert report.headline == report.leading.summary


def test_of_an_undecided_case_the_question_about_most_bytes_leads():
    text = (
        "Allocation on device 0 would exceed allowed memory. (out of memory)\n"
        "Currently allocated     : 10.00 GiB\nRequested               : 4.00 GiB\n"
        "Device limit            : 20.00 GiB\nFree (according to CUDA): 8.00 MiB\n"
    )
    report = report_on(text_case(text))
    assert report.primary == "undecided"
    assert "9.99 GiB are neither live nor free" in report.headline


BROKEN = Exit(kind=ExitKind.EXCEPTION, code=1, exception_type="ValueError", message="bad shape")


@pytest.mark.parametrize(
    ("ending", "said"),
    [
        (BROKEN, "ended with ValueError: bad shape"),
        (replace(BROKEN, message=None), "ended with ValueError,"),
        (Exit(kind=ExitKind.SIGNAL, signal=11), "ended by SIGSEGV"),
    ],
)
def test_an_ending_that_no_rule_knows_is_named(ending: Exit, said: str):
    report = report_on(ended(ending))
    assert report.primary == "undecided"
    assert said in report.headline


def test_on_a_virtual_gpu_an_error_about_values_is_put_down_to_it():
    assert "computes nothing" in report_on(ended(BROKEN, kind="virtual")).headline
    assert "computes nothing" not in report_on(ended(BROKEN)).headline
