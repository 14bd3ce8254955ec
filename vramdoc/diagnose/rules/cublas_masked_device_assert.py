"""cublas-masked-device-assert: an index out of range killed the CUDA context; what fails next only reports it."""

from __future__ import annotations

from vramdoc.diagnose.answers import (
    THE_ERROR,
    cite,
    confirmed,
    quote,
    ruled_out,
    text_is_silent,
    undecided,
)
from vramdoc.diagnose.library_errors import EARLIER, library_error
from vramdoc.diagnose.rule import Rule
from vramdoc.diagnose.script_signs import IDS_BEYOND_VOCABULARY, source_line, violation
from vramdoc.diagnose.verdict import Confidence, Verdict
from vramdoc.evidence.case import Case

ID = "cublas-masked-device-assert"
_MEANINGS = (
    # (part of the assertion, what it means); aten/src/ATen/native/cuda
    (
        "srcSelectDimSize",
        "an index is outside an embedding or index_select table (a token id at or above the vocabulary size, a position beyond the maximum)",
    ),
    ("index out of bounds", "an index is outside the tensor (gather, index, scatter)"),
    ("ind >= 0", "an index is outside an embedding table"),
    ("idx_dim", "an index is outside the tensor (scatter, gather)"),
    ("n_classes", "a label is outside the range of classes"),
    ("cur_target", "a label is outside the range of classes"),
    ("input_val", "an input of binary_cross_entropy is outside 0 to 1"),
    ("probability tensor", "a probability is negative, infinite or NaN (multinomial)"),
)
_RERUN = "a run on the CPU, or with CUDA_LAUNCH_BLOCKING=1, which reports the true error"
_ABOVE = "the log above the error"


def judge(case: Case) -> Verdict:
    """Confirm when the text shows an assert (or illegal access); leave it open when a cuBLAS error stands alone."""
    error = library_error(case)
    log = case.crash
    earlier = log.first(*EARLIER) if log is not None else None
    if (
        log is not None
        and earlier is not None
        and (error is not None or earlier.kind != "illegal-access")
    ):
        shown = next((i for i in log.all("device-assert") if "assertion" in i.readings), earlier)
        assertion = shown.readings.get("assertion")
        meaning = _meaning(assertion.text if assertion else shown.text)
        consequence = (
            f"{error.name} is only its consequence"
            if error
            else "later CUDA errors are its consequence"
        )
        what = {"illegal-access": "An illegal memory access", "index-error": "An index error"}.get(
            shown.kind, "A device-side assertion"
        )
        detail = f" ({assertion.text})" if assertion else ""
        return confirmed(
            ID,
            f"{what}{detail} is the first error and the cause{f': {meaning}' if meaning else ''}. {consequence[0].upper()}{consequence[1:]}: it is not a memory problem, and no batch size changes it.",
            [
                cite(assertion) if assertion else quote(shown),
                *([quote(error.incident, "consequence")] if error else []),
            ],
            confidence=Confidence.MEDIUM if shown.kind == "illegal-access" else Confidence.HIGH,
            notes=[
                'On the CPU the same code raises a plain error, for example "IndexError: index out of range in self".',
                "After an assert the CUDA context is broken for good: restart the process (in a notebook, the kernel) before trying anything.",
            ],
        )
    beyond = violation(case, IDS_BEYOND_VOCABULARY)
    if error is not None and beyond is not None:
        return confirmed(
            ID,
            f"The script itself goes out of range: {beyond.message}. {error.name} is what the failed device-side assert looks like from the host; it is not a memory problem.",
            [source_line(beyond), quote(error.incident, "consequence")],
            confidence=Confidence.MEDIUM,
            notes=["A run on the CPU, or with CUDA_LAUNCH_BLOCKING=1, shows the real error."],
        )
    if error is None:
        if text_is_silent(case):
            return undecided(ID, "The text holds no CUDA error.", [THE_ERROR])
        return ruled_out(ID, "No device-side assert and no cuBLAS error is in evidence.")
    if error.status in {"INVALID_VALUE", "NOT_SUPPORTED", "ARCH_MISMATCH"}:
        return ruled_out(
            ID,
            f"{error.name} is an argument check on the host, before any kernel.",
            [quote(error.incident)],
            confidence=Confidence.MEDIUM,
        )
    return undecided(
        ID,
        f"{error.name} can also be the first call after a device-side assert; this text shows none.",
        [_ABOVE, _RERUN],
        evidence=[quote(error.incident)],
    )


def _meaning(assertion: str) -> str:
    return next((meaning for part, meaning in _MEANINGS if part in assertion), "")


RULE = Rule(
    id=ID,
    title="An index out of range, reported late",
    meaning=(
        "A kernel checked an index and stopped: a token id at or above the vocabulary size, a position beyond the maximum, a label outside the classes. CUDA reports it at some later call, and after it every call fails, "
        "so the traceback often ends in cublasCreate or a matrix product that has nothing to do with it."
    ),
    how_decided='The text shows "device-side assert triggered", an assertion of a .cu file, or the CPU\'s own index error beside a cuBLAS error. A cuBLAS error alone leaves it open.',
    not_to_confuse_with="cublas-handle-no-vram, which has the same last line.",
    remedies=("RX-INDEXFIX",),
    references=(
        "aten/src/ATen/native/cuda/Indexing.cu, NLLLoss2d.cu, Embedding.cu",
        "transformers#12935",
        "pytorch#24838",
    ),
    judge=judge,
)
