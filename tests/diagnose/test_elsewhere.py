"""Errors that are no shortage are named as what they are; beside a real shortage they do not speak."""

from __future__ import annotations

import pytest

from tests.diagnose.builders import text_case
from vramdoc.crashlog.wordings import WORDINGS
from vramdoc.diagnose.elsewhere import elsewhere
from vramdoc.diagnose.engine import judge, primary

OOM = (
    "torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 2.00 GiB. GPU 0 has a total capacity of 8.00 GiB of which 1.00 GiB is free. "
    "Of the allocated memory 6.00 GiB is allocated by PyTorch, and 10.00 MiB is reserved by PyTorch but unallocated."
)


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("OutOfResources: out of resource: shared memory, Required: 131072, Hardware limit: 101376. Reducing block sizes", "on-chip memory, not VRAM"),
        ("RuntimeError: CUDA error: misaligned address", "misaligned"),
        ("RuntimeError: CUDA error: unspecified launch failure", "no amount of memory"),
        ("RuntimeError: CUDA error: the launch timed out and was terminated", "time limit"),
        ("RuntimeError: CUDA error: uncorrectable ECC error encountered", "hardware fault"),
        ("RuntimeError: No CUDA GPUs are available", "no GPU at all"),
        ("RuntimeError: CUDA error: invalid device ordinal", "CUDA_VISIBLE_DEVICES"),
        ("[rank0]: Watchdog caught collective operation timeout: WorkNCCL(SeqNum=9)", "another rank"),
        ("RuntimeError: CUDA error: an illegal memory access was encountered", "compute-sanitizer"),
        ("RuntimeError: cusolver error: CUSOLVER_STATUS_INTERNAL_ERROR, when calling `cusolverDnCreate(handle)`", "INTERNAL_ERROR"),
    ],
)  # fmt: skip
def test_an_error_that_is_no_shortage_is_named(text: str, said: str):
    case = text_case(text)
    assert case.crash is not None
    assert said in elsewhere(case.crash)
    assert primary(judge(case), case) == "undecided"


def test_every_wording_of_this_kind_has_its_sentence():
    from vramdoc.diagnose.elsewhere import _SENTENCES

    assert {w.name for w in WORDINGS if w.kind == "elsewhere"} <= _SENTENCES.keys()


def test_beside_a_shortage_the_shortage_speaks():
    case = text_case(f"{OOM}\nRuntimeError: CUDA error: unspecified launch failure")
    assert case.crash is not None
    assert elsewhere(case.crash) == ""
    assert primary(judge(case), case) == "true-capacity"


@pytest.mark.parametrize(
    ("text", "owner"),
    [
        ("ResourceExhaustedError: OOM when allocating tensor with shape[64,256] and type float", "TensorFlow"),
        ("XlaRuntimeError: RESOURCE_EXHAUSTED: Out of memory while trying to allocate 1288490188 bytes.", "JAX"),
    ],
)  # fmt: skip
def test_another_frameworks_allocator_is_named(text: str, owner: str):
    case = text_case(text)
    [told] = [v for v in judge(case) if v.id == "true-capacity"]
    assert told.summary.startswith(f"{owner}'s own allocator")
    assert primary(judge(case), case) == "undecided"
