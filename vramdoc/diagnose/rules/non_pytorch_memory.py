"""non-pytorch-memory: this process's own context, libraries and communicators hold what is lacking."""

from __future__ import annotations

from vramdoc.diagnose.answers import confirmed, ruled_out, undecided
from vramdoc.diagnose.failing import figures, size, where, without_figures
from vramdoc.diagnose.remarks import remarks, usual_outside
from vramdoc.diagnose.rule import Rule
from vramdoc.diagnose.shortage import Situation, shortage
from vramdoc.diagnose.verdict import Confidence, Severity, Verdict
from vramdoc.evidence.case import Case

ID = "non-pytorch-memory"


def judge(case: Case) -> Verdict:
    """Confirm when this process holds more outside the pool than is normal; it leads when that would have made room."""
    found = shortage(case)
    if found is None:
        return without_figures(ID, case)
    sums = found.balance
    excess = found.sufficient.get(ID, found.contributing.get(ID, 0))
    if excess:
        leads = found.leading == ID
        return confirmed(
            ID,
            f"This process holds {size(sums.non_pytorch)} of {where(case)} outside PyTorch's pool (CUDA context, cuBLAS and NCCL, CUDA graphs, other "
            f"libraries), {size(excess)} more than the {size(usual_outside(found))} that need no explanation.",
            figures(case, found, "reserved", "non_pytorch", "short"),
            confidence=Confidence.MEDIUM,
            severity=Severity.ERROR if leads else Severity.WARNING,
            explains=excess,
            notes=remarks(case, found) if leads else (),
        )
    if sums.non_pytorch is not None:
        return ruled_out(
            ID,
            f"This process holds {size(sums.non_pytorch)} outside PyTorch's pool, which is normal.",
            figures(case, found, "non_pytorch"),
        )
    if found.situation is Situation.HAD_ROOM or (
        sums.outside is not None and sums.outside <= usual_outside(found)
    ):
        return ruled_out(
            ID,
            f"All that is outside PyTorch's pool is {size(sums.outside)}.",
            figures(case, found, "outside_this_allocator"),
        )
    return undecided(
        ID,
        "How much this process holds outside PyTorch's pool is not printed.",
        ["this process's own use of the device (nvidia-smi)"],
        severity=Severity.WARNING,
    )


RULE = Rule(
    id=ID,
    title="This process holds much memory outside PyTorch's pool",
    meaning=(
        "CUDA contexts, loaded kernels, cuBLAS and cuDNN handles, NCCL communicators, instantiated CUDA graphs and other libraries take device memory straight from the driver. "
        "PyTorch neither counts nor returns it."
    ),
    how_decided=(
        "this process's use (NVML) - reserved. Up to max(1.5 GiB, 5 % of the device) is normal: contexts were measured at 0.3 to 1 GiB, communicators and graphs add to it. "
        "The excess leads when it would have covered the shortage by itself, else it is reported as a contributor. In a recording the same is total - free - reserved - foreign."
    ),
    not_to_confuse_with="foreign-process. Workspaces of cuBLAS live inside PyTorch's pool (torch 2.0+) and are not meant here.",
    remedies=("RX-NONTORCH", "RX-FRACTION", "RX-WARMHANDLE"),
    references=("allocator-spec 10.1", "failure-pattern catalogue 3.5"),
    judge=judge,
)
