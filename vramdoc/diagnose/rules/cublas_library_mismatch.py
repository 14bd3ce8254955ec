"""cublas-library-mismatch: the CUDA libraries, the driver or the GPU's architecture do not belong together."""

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
from vramdoc.diagnose.library_errors import earlier_error, library_error
from vramdoc.diagnose.rule import Rule
from vramdoc.diagnose.verdict import Confidence, Verdict
from vramdoc.evidence.case import Case

ID = "cublas-library-mismatch"
_PROOFS = {
    "no-kernel-image": "This torch build holds no kernels for the GPU's architecture.",
    "driver-too-old": "The driver is older than the CUDA runtime of this torch build.",
    "library-load": "A CUDA library of another version is loaded in place of the one that torch was built with.",
}
_CHECK = "whether a product of two 8 x 8 matrices fails in a clean process on an idle GPU"
_LIBRARIES = "which libcublas and libcublasLt are loaded (LD_LIBRARY_PATH; /proc/PID/maps)"


def judge(case: Case) -> Verdict:
    """Confirm from a loader or architecture error; from INVALID_VALUE and the like with less confidence."""
    log = case.crash
    proof = log.first(*_PROOFS) if log is not None else None
    if proof is not None:
        return confirmed(ID, f"{_PROOFS[proof.kind]} This is no memory error.", [quote(proof)])
    error = library_error(case)
    if error is None:
        if text_is_silent(case):
            return undecided(ID, "The text holds no CUDA error.", [THE_ERROR])
        return ruled_out(ID, "No library error is in evidence.")
    if earlier_error(case):
        return ruled_out(ID, "An earlier error on the device explains it.")
    if error.status in {"INVALID_VALUE", "NOT_SUPPORTED", "ARCH_MISMATCH"}:
        path = log.signs.get("library-path") if log is not None else None
        return confirmed(
            ID,
            f"{error.name} is no memory error and unlike a failed cublasCreate: the handle exists, and the call was refused. First check for mixed libraries: a system cuBLAS or cuBLASLt on LD_LIBRARY_PATH beside the wheel's own, "
            + (
                "or bad strides."
                if error.status == "INVALID_VALUE"
                else "or a data type or alignment that this GPU does not support."
            ),
            [quote(error.incident), *([cite(path)] if path else [])],
            confidence=Confidence.MEDIUM if error.status != "NOT_SUPPORTED" else Confidence.LOW,
            notes=[
                "Unset LD_LIBRARY_PATH and run again; then multiply two 8 x 8 matrices in a clean process: if that fails too, the installation is at fault."
            ],
        )
    return undecided(
        ID,
        f"{error.name} also appears when libraries do not match.",
        [_CHECK, _LIBRARIES],
        evidence=[quote(error.incident)],
    )


RULE = Rule(
    id=ID,
    title="CUDA libraries that do not belong together",
    meaning=(
        "Another cuBLAS, cuBLASLt or driver than the one that torch was built with is in use, often through LD_LIBRARY_PATH, or the build has no kernels for this GPU. Then calls fail with statuses that look like anything."
    ),
    how_decided=(
        'Confirmed by an undefined symbol of a CUDA library, "no kernel image is available", a driver that is too old, or INVALID_VALUE, NOT_SUPPORTED or ARCH_MISMATCH from a product (the handle exists, so memory is out). '
        "EXECUTION_FAILED, INTERNAL_ERROR and NOT_INITIALIZED leave it open."
    ),
    not_to_confuse_with="cublas-handle-no-vram, cublas-masked-device-assert.",
    remedies=("RX-LIBS", "RX-SETDEV"),
    references=("pytorch PR#174320", "vllm#35608"),
    judge=judge,
)
