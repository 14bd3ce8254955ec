"""What the child process does once it has imported torch, to run truthfully on a virtual GPU.

torch comes as an argument: importing this module imports nothing.
"""

from __future__ import annotations

import ctypes
import sys
from typing import Any

from vramdoc.errors import DeviceUnavailable

NOTES = (
    (
        "The virtual GPU keeps accounts of memory and computes nothing: values read back are zeros, "
        "and code that branches on one may take another path than on a real GPU."
    ),
    (
        "cuDNN is off on the virtual GPU, for attention too: PyTorch's own kernels run, whose "
        "workspaces may differ."
    ),
    "Triton, cuSOLVER, cuFFT, cuSPARSE and NCCL need a real GPU: what uses them fails and says so.",
    "What the CUDA context and a cuBLAS handle take are the catalogue's figures.",
)
"""What differs from a real run, for the recording."""


def is_active() -> bool:
    """Whether this process runs on the virtual GPU: its library answers, whatever the environment says."""
    return sys.platform == "linux" and hasattr(ctypes.CDLL(None), "vramdoc_virtual_gpu")


def prepare_torch(torch: Any) -> list[str]:
    """Switch off what would need a real GPU, and say what therefore differs from a real run.

    Returns:
        Sentences for the recording's notes.

    Raises:
        DeviceUnavailable: the library was not loaded, so torch would have run on a real device or none.
    """
    if not is_active():
        raise DeviceUnavailable(
            "the virtual GPU's library was not loaded into this process",
            "something between vramdoc and the program cleared LD_PRELOAD or LD_LIBRARY_PATH",
        )
    torch.backends.cudnn.enabled = False
    if hasattr(torch.backends.cuda, "enable_cudnn_sdp"):
        torch.backends.cuda.enable_cudnn_sdp(False)  # noqa: FBT003 - torch's signature
    return list(NOTES)
