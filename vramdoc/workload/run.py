"""run: carry out a WorkloadSpec on the CUDA device that is there, real or virtual, and keep a journal of it.

Everything is decided by the spec: the number of steps is fixed and nothing branches on a value read back from the
device, because a virtual device has no values. It knows neither recordings nor configs: the journal's owner does.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import torch

from vramdoc.checkpoint import OtherShape, Shape, infer_shape, read_checkpoint
from vramdoc.errors import UsageError
from vramdoc.workload import conversations
from vramdoc.workload.caches import STRATEGIES
from vramdoc.workload.journal import Journal
from vramdoc.workload.models import Model, load_model
from vramdoc.workload.spec import WorkloadSpec
from vramdoc.workload.weights import asked_dtype, load_weights

ENCODE_BATCHES = 12
TRAIN_STEPS = 4


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
    phases = _Phases(spec, journal)
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


class _Phases:
    """Opens the journal's phases, and empties the allocator's cache between them where the spec says so."""

    def __init__(self, spec: WorkloadSpec, journal: Journal) -> None:
        self.journal = journal
        self._empty = spec.empty_cache
        self._last = ""

    @contextmanager
    def open(self, name: str, **detail: int | float | str) -> Iterator[None]:
        if self._empty and self._last not in {"", name}:
            torch.cuda.empty_cache()
        self._last = name
        with self.journal.phase(name, **detail):
            yield


def _ids(model: Model, batch: int, tokens: int) -> torch.Tensor:
    return torch.randint(model.vocab, (batch, tokens), device="cuda")


def _context(model: Model, spec: WorkloadSpec, phases: _Phases) -> int:
    """The context to run: the model's own limit where the default goes past it."""
    if model.max_positions is None or spec.context <= model.max_positions:
        return spec.context
    phases.journal.note(
        f"context cut from {spec.context} to the model's own limit of {model.max_positions} tokens"
    )
    return model.max_positions


def _chat(model: Model, spec: WorkloadSpec, phases: _Phases) -> None:
    """Conversations take turns (``conversations.chat``); each answer is a fixed number of tokens."""
    context = _context(model, spec, phases)
    open_caches = _OpenCaches(model, spec, context, phases.journal)
    schedule = list(
        conversations.chat(
            context=context, sessions=spec.sessions, new_tokens=spec.new_tokens, seed=spec.seed
        )
    )
    for done, event in enumerate(schedule, start=1):
        match event:
            case conversations.Drop(session):
                with phases.open("drop", session=session, context=open_caches.lengths[session]):
                    open_caches.drop(session)
            case conversations.Turn(session, prompt, answer):
                cache = open_caches.of(session)
                ids = _ids(model, spec.batch, prompt)
                for name, tokens, steps in (("prefill", prompt, 1), ("decode", answer, answer)):
                    with phases.open(name, **open_caches.grow(session, tokens)):
                        for _ in range(steps):
                            ids = model.step(ids, cache)[:, -1].float().argmax(-1, keepdim=True)
                open_caches.observe(session)
        phases.journal.progress(done, len(schedule))


class _OpenCaches:
    """The conversations that are open: their caches, and what the formula says that these hold."""

    def __init__(self, model: Model, spec: WorkloadSpec, context: int, journal: Journal) -> None:
        self._model, self._spec, self._journal = model, spec, journal
        self._open = model.caches(spec.cache, capacity=context, sessions=spec.sessions)
        self._caches: dict[int, Any] = {}
        self.lengths: dict[int, int] = {}

    def of(self, session: int) -> Any:
        if session not in self._caches:
            self._caches[session] = self._open()
            self.lengths[session] = 0
        return self._caches[session]

    def drop(self, session: int) -> None:
        self._model.close_cache(self._caches.pop(session))
        del self.lengths[session]

    def grow(self, session: int, tokens: int) -> dict[str, int]:
        """Count ``tokens`` more; the detail of the phase that adds them, with bytes as they are at its end."""
        self.lengths[session] += tokens
        detail = {"session": session, "context": self.lengths[session], "new_tokens": tokens}
        if self._model.layout is not None:
            detail |= {
                "kv_bytes": self._formula(session), "live_kv_bytes": sum(map(self._formula, self.lengths)),
            }  # fmt: skip
        return detail

    def _formula(self, session: int) -> int:
        if self._model.layout is None:
            return 0
        return self._model.layout.bytes_at(self.lengths[session], batch=self._spec.batch)

    def observe(self, session: int) -> None:
        """Put the bytes that the caches really hold beside the formula's."""
        self._journal.observe(
            "kv-cache", session=session, context=self.lengths[session],
            formula_bytes=sum(map(self._formula, self.lengths)),
            held_bytes=sum(map(self._model.held_bytes, self._caches.values())),
        )  # fmt: skip


def _prefill(model: Model, spec: WorkloadSpec, phases: _Phases) -> None:
    """Each session reads one whole prompt and generates nothing; all stay open."""
    context = _context(model, spec, phases)
    open_caches = _OpenCaches(model, spec, context, phases.journal)
    for session in range(spec.sessions):
        cache = open_caches.of(session)
        with phases.open("prefill", **open_caches.grow(session, context)):
            model.step(_ids(model, spec.batch, context), cache)
        open_caches.observe(session)
        phases.journal.progress(session + 1, spec.sessions)


def _encode(model: Model, spec: WorkloadSpec, phases: _Phases) -> None:
    """Batches of drawn size and length, as a service meets them; nothing is kept between them."""
    context = _context(model, spec, phases)
    batches = conversations.batches(
        context=context,
        largest=max(spec.batch, spec.sessions * 8),
        count=ENCODE_BATCHES,
        seed=spec.seed,
    )
    for done, (size, tokens) in enumerate(batches, start=1):
        with phases.open("encode", batch=size, context=tokens):
            model.encode(_ids(model, size, tokens))
        phases.journal.progress(done, ENCODE_BATCHES)


def _train(model: Model, spec: WorkloadSpec, phases: _Phases) -> None:
    """A few steps of AdamW over batches of ``context`` tokens."""
    context = _context(model, spec, phases)
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-5)
    for step in range(TRAIN_STEPS):
        with phases.open("step", step=step, batch=spec.batch, context=context):
            model.loss(_ids(model, spec.batch, context)).backward()
            optimizer.step()
            optimizer.zero_grad(set_to_none=True)
        phases.journal.progress(step + 1, TRAIN_STEPS)


def _nothing_more(model: Model, spec: WorkloadSpec, phases: _Phases) -> None:
    """``load``: the weights are on the device, and that is all."""


WORKLOADS: dict[str, Callable[[Model, WorkloadSpec, _Phases], None]] = {
    "chat": _chat, "prefill": _prefill, "load": _nothing_more, "encode": _encode, "train": _train,
}  # fmt: skip
"""``--workload`` names to what they do."""
