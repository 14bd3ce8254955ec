"""Each vendor's tools and variables, for sentences and commands that fit the device. Data, and how to tell whose a message is."""

from __future__ import annotations

from dataclasses import dataclass

from vramdoc.evidence.case import Case


@dataclass(frozen=True, slots=True, kw_only=True)
class Vendor:
    """What one vendor's users type."""

    lister: str
    """The program that lists a device's processes."""
    processes: str
    """Its command line for processes and their memory."""
    visible: str
    """The variable that chooses devices."""


NVIDIA = Vendor(
    lister="nvidia-smi",
    processes="nvidia-smi --query-compute-apps=pid,used_memory --format=csv",
    visible="CUDA_VISIBLE_DEVICES",
)
_OTHERS = {
    "HIP": Vendor(lister="rocm-smi", processes="rocm-smi --showpids", visible="HIP_VISIBLE_DEVICES"),
    "XPU": Vendor(lister="xpu-smi ps", processes="xpu-smi ps", visible="ZE_AFFINITY_MASK"),
    "NPU": Vendor(lister="npu-smi info", processes="npu-smi info", visible="ASCEND_RT_VISIBLE_DEVICES"),
}  # fmt: skip
"""By the word that their message begins with."""


def vendor(case: Case) -> Vendor:
    """Whose device the failed request was for; NVIDIA's where the message names nobody."""
    text = case.oom.text if case.oom is not None else ""
    return next((found for name, found in _OTHERS.items() if text.startswith(name)), NVIDIA)
