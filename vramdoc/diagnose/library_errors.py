"""What a cuBLAS error says by itself: which call failed, with which status, and what the log shows above it. Shared by three rules."""

from __future__ import annotations

from dataclasses import dataclass

from vramdoc.crashlog.incident import CrashLog, Incident
from vramdoc.evidence.case import Case

_OLD_STATUS = {
    "resource allocation failed": "ALLOC_FAILED",
    "library not initialized": "NOT_INITIALIZED",
    "the GPU program failed to execute": "EXECUTION_FAILED",
    "an internal operation failed": "INTERNAL_ERROR",
    "an invalid numeric value was used as an argument": "INVALID_VALUE",
    "an absent device architectural feature is required": "ARCH_MISMATCH",
}
"""Texts of torch up to 1.1 (THCBlas)."""
_HANDLE_CALLS = (
    "cublasCreate",
    "cublasCreate_v2",
    "hipblasCreate",
    "cublasLtCreate",
    "cusolverDnCreate",
    "rocblas_create_handle",
)
_UNMADE = ("ALLOC_FAILED", "NOT_INITIALIZED")
"""Statuses with which NVIDIA documents a handle that could not be made; they are used interchangeably in practice."""
EARLIER = ("device-assert", "illegal-access", "index-error")


@dataclass(frozen=True, slots=True, kw_only=True)
class LibraryError:
    """One failed library call."""

    incident: Incident
    status: str
    call: str
    """Empty where the message does not name it."""

    @property
    def is_handle_creation(self) -> bool:
        """The first use of the library on a thread and device (ATen/cuda/CublasHandlePool.cpp), refused for want of something."""
        if self.status not in _UNMADE:
            return False
        if (
            self.incident.kind == "cudnn"
        ):  # torch names no call of cuDNN; a handle that exists never answers so
            return self.status == "NOT_INITIALIZED"
        return self.call in _HANDLE_CALLS or (
            not self.call and self.incident.wording == "torch-1.1"
        )

    @property
    def name(self) -> str:
        """The error in a few words."""
        status = f"{self.incident.kind.upper()}_STATUS_{self.status}"
        return f"{self.call} ({status})" if self.call else status


def library_error(case: Case) -> LibraryError | None:
    """The first failed call of cuBLAS, or of cuSOLVER or cuDNN for want of memory."""
    if case.crash is None:
        return None
    incident = case.crash.first("cublas") or _starved(case.crash)
    if incident is None:
        return None
    status, call = incident.readings.get("status"), incident.readings.get("call")
    text = str(status.value) if status else ""
    return LibraryError(
        incident=incident, status=_OLD_STATUS.get(text, text), call=str(call.value) if call else ""
    )


def _starved(log: CrashLog) -> Incident | None:
    """A handle or workspace of a sister library that got no memory; their other errors are not ours."""
    for incident in log.all("cusolver", "cudnn"):
        status, call = incident.readings.get("status"), incident.readings.get("call")
        creates = incident.kind == "cudnn" or (call is not None and call.value in _HANDLE_CALLS)
        if status and (status.value == "ALLOC_FAILED" or (creates and status.value in _UNMADE)):
            return incident
    return None


def earlier_error(case: Case) -> Incident | None:
    """A device-side assert, illegal access or index error anywhere in the text.

    Kernels report late and out of order, and every call after an assert fails, so its place relative to the cuBLAS line does not matter.
    """
    return None if case.crash is None else case.crash.first(*EARLIER)
