"""Read the log of driver-level memory calls that the virtual GPU writes on request.

One line a call: ``PID CALL DEVICE BYTES ADDRESS RESULT``. This module does not know what PyTorch meant by a call.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from vramdoc.errors import UnreadableInput


@dataclass(frozen=True, slots=True)
class DriverCall:
    """One call that changed, or failed to change, an account of the virtual GPU."""

    pid: int
    call: str
    """``"cudaMalloc"``, ``"cuMemCreate"``, ``"cublasCreate"``, ``"context"`` ..., or a refused entry point's name."""
    device: int
    """The ordinal; -1 for host memory."""
    bytes: int
    address: int
    """0 where the call has none; the handle for ``cuMemCreate`` and ``cuMemRelease``."""
    result: int
    """The CUDA or cuBLAS result code: 0 is success, 2 out of memory, 3 CUBLAS_STATUS_ALLOC_FAILED, 801 not supported."""


def read_driver_log(path: Path) -> list[DriverCall]:
    """All calls in ``path``, in the order they were made.

    Raises:
        UnreadableInput: the file is missing or a line is not one of ours.
    """
    try:
        lines = path.read_text(encoding="utf-8").splitlines()
    except OSError as error:
        raise UnreadableInput(f"cannot read {path}: {error.strerror}") from error
    try:
        return [_parse(line) for line in lines]
    except ValueError as error:
        raise UnreadableInput(f"{path} is not a driver log of the virtual GPU: {error}") from error


def _parse(line: str) -> DriverCall:
    pid, *call, device, size, address, result = line.split(" ")
    return DriverCall(
        pid=int(pid),
        call=" ".join(call),
        device=int(device),
        bytes=int(size),
        address=int(address, 16),
        result=int(result),
    )
