"""run: carry out a WorkloadSpec on the CUDA device that is there, real or virtual, and keep a journal of it.

Everything is decided by the spec: the number of steps is fixed and nothing branches on a value read back from the
device, because a virtual device has no values. It knows neither recordings nor configs: the journal's owner does.
"""

from __future__ import annotations

from collections.abc import Callable

import torch

from vramdoc.checkpoint import OtherShape, Shape, infer_shape, read_checkpoint
from vramdoc.errors import UsageError
from vramdoc.workload.caches import STRATEGIES
from vramdoc.workload.journal import Journal
from vramdoc.workload.models import Model, load_model
from vramdoc.workload.serve import serve
from vramdoc.workload.sessions import Phases
from vramdoc.workload.spec import WorkloadSpec
from vramdoc.workload.tasks import chat, encode, fill, load, prefill, train
from vramdoc.workload.weights import asked_dtype, load_weights


def run(spec: WorkloadSpec, journal: Journal) -> object:
    """Load the target and put the workload through it; return what is still on the device, for the last snapshot.

    Raises:
        UsageError: the spec asks for something that does not exist.
        UnreadableInput: the target is not a model.
        torch.OutOfMemoryError: what the recording is for; nothing here catches it.
    """
    if spec.name not in WORKLOADS:
        raise UsageError(
            f"unknown workload {spec.name!r}", f"choose from {', '.join(sorted(WORKLOADS))}"
        )
    if spec.cache not in STRATEGIES:
        raise UsageError(
            f"unknown cache {spec.cache!r}", f"choose from {', '.join(sorted(STRATEGIES))}"
        )
    asked_dtype(spec.dtype)  # refuse before anything is loaded
    checkpoint = read_checkpoint(spec.target)
    torch.manual_seed(spec.seed)
    if spec.memory_fraction is not None:
        torch.cuda.set_per_process_memory_fraction(spec.memory_fraction)
    if spec.warm_cublas:
        one = torch.ones((1, 1), device="cuda")
        torch.mm(one, one)
    phases = Phases(spec, journal)
    shape = infer_shape(checkpoint)
    for note in shape.notes:
        journal.note(str(note))
    with phases.open("load", weight_bytes=checkpoint.weight_bytes, tensors=len(checkpoint.tensors)):
        model = load_model(shape, checkpoint, spec, journal)
        if model is None:
            journal.note(
                f"only loading was measured: {_why_not_run(shape)}; record your own script with: vramdoc record -- python ..."
            )
            return [tensor for _, tensor in load_weights(checkpoint)]
    name = spec.name if model.is_decoder or spec.name in {"load", "train"} else "encode"
    with torch.inference_mode(name != "train"):
        WORKLOADS[name](model, spec, phases)
    return model


def _why_not_run(shape: Shape) -> str:
    if isinstance(shape, OtherShape):
        return f"this is a model of the kind {shape.kind}, and {shape.reason}"
    return getattr(shape, "unrunnable", None) or "nothing here can run it"


WORKLOADS: dict[str, Callable[[Model, WorkloadSpec, Phases], None]] = {
    "chat": chat, "prefill": prefill, "fill": fill, "load": load, "encode": encode, "train": train, "serve": serve,
}  # fmt: skip
"""``--workload`` names to what they do."""
