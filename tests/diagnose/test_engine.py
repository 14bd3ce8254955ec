"""All rules together: nothing is concluded from nothing, and one broken rule costs no other answer."""

from __future__ import annotations

import dataclasses

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.diagnose.builders import leading, manifest, message, recording, text_case
from vramdoc.diagnose import engine
from vramdoc.diagnose.rules import RULES
from vramdoc.diagnose.verdict import Outcome
from vramdoc.evidence.case import Case
from vramdoc.prescribe.catalogue import CATALOGUE

IDS = (
    "true-capacity", "fragmentation", "foreign-process", "memory-limit", "non-pytorch-memory", "cublas-handle-no-vram",
    "cublas-masked-device-assert", "cublas-library-mismatch", "resize-not-resizable", "ragged-batch", "kv-growth", "leak", "conf-error",
    "conf-unsupported-platform", "conf-ineffective", "graph-private-pool", "host-oom",
)  # fmt: skip
"""The contract of design section 5."""

OTHER_ERRORS = [
    "Traceback (most recent call last):\n  File \"a.py\", line 1, in <module>\n    x\nNameError: name 'x' is not defined\n",
    "RuntimeError: mat1 and mat2 shapes cannot be multiplied (2x3 and 4x5)",
    "RuntimeError: Expected all tensors to be on the same device, but found at least two devices, cuda:0 and cpu!",
    "ModuleNotFoundError: No module named 'flash_attn'",
    "torch.distributed.DistBackendError: NCCL error in: ProcessGroupNCCL.cpp:1691, unhandled system error",
    "ValueError: Tokenizer class LlamaTokenizer does not exist",
    "KeyboardInterrupt",
    "Training took longer than I remembered; the free memory was 3 GiB and the reserved table at eight was allocated to others.",
    "RuntimeError: CUDA error: CUBLAS_STATUS_EXECUTION_FAILED when calling `cublasSgemm( handle, opa, opb, m, n, k)`",
]


def test_every_id_of_the_contract_has_one_rule():
    assert sorted(rule.id for rule in RULES) == sorted(IDS)


@pytest.mark.parametrize("rule", RULES, ids=lambda rule: rule.id)
def test_a_rule_explains_itself_and_names_remedies_that_exist(rule):
    assert all(
        (rule.title, rule.meaning, rule.how_decided, rule.not_to_confuse_with, rule.references)
    )
    assert set(rule.remedies) <= CATALOGUE.keys()


@pytest.mark.parametrize("kind", ["crash-text", "snapshot", "recording"])
def test_every_rule_answers_the_empty_case(kind: str):
    verdicts = engine.judge(Case(kind=kind, name="nothing"))
    assert len(verdicts) == len(RULES)
    assert not [
        v for v in verdicts if v.outcome is Outcome.CONFIRMED or "This rule failed" in v.summary
    ]


@pytest.mark.parametrize("text", OTHER_ERRORS)
def test_other_errors_are_undecided_and_say_what_is_missing(text: str):
    case = text_case(text)
    assert leading(case) == "undecided"
    assert any(v.missing for v in engine.judge(case))


@given(st.text(min_size=1, max_size=500))
def test_any_text_without_a_known_error_is_undecided(text: str):
    case = text_case(text)
    if case.crash is not None and not case.crash.incidents:
        assert leading(case) == "undecided"


def test_a_broken_rule_is_reported_and_the_others_are_heard(monkeypatch: pytest.MonkeyPatch):
    def broken(case: Case):
        raise ZeroDivisionError("no")

    rules = (dataclasses.replace(RULES[0], judge=broken), *RULES[1:])
    monkeypatch.setattr(engine, "RULES", rules)
    verdicts = engine.judge(message(requested=1, total=24, free=0, allocated=15, unallocated=8))
    assert verdicts[0].outcome is Outcome.UNDECIDED
    assert "ZeroDivisionError" in verdicts[0].summary
    assert [v.id for v in verdicts if v.outcome is Outcome.CONFIRMED] == ["fragmentation"]


def test_a_warning_alone_is_primary_but_never_beside_an_unexplained_failure():
    warning = "UserWarning: expandable_segments not supported on this platform\n"
    assert leading(text_case(warning)) == "conf-unsupported-platform"
    assert leading(text_case(warning + "RuntimeError: CUDA error: out of memory")) == "undecided"


def test_the_programs_own_error_comes_before_sums_of_bytes():
    full = message(requested=1, total=24, free=0, allocated=23, unallocated=0.1).oom.text
    text = f"RuntimeError: CUDA error: device-side assert triggered\n{full}\n"
    assert leading(text_case(text)) == "cublas-masked-device-assert"


def test_an_interrupted_run_is_no_failure():
    from vramdoc.record.recording import ExitKind

    assert leading(recording(manifest(ExitKind.INTERRUPTED))) == "healthy"
