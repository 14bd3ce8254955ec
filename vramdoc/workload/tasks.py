"""The workloads with a fixed schedule: chat, prefill, fill, encode, train. Each is one function over a loaded Model.

The number of steps follows from the spec, and nothing branches on a value read back from the device.
"""

from __future__ import annotations

import torch

from vramdoc.workload import conversations
from vramdoc.workload.models import Model
from vramdoc.workload.sessions import OpenCaches, Phases, context_to_run, random_ids
from vramdoc.workload.spec import WorkloadSpec

ENCODE_BATCHES = 12
TRAIN_STEPS = 4


def load(model: Model, spec: WorkloadSpec, phases: Phases) -> None:
    """The weights are on the device, and that is all."""


def chat(model: Model, spec: WorkloadSpec, phases: Phases) -> None:
    """Conversations take turns (``conversations.chat``); each answer is a fixed number of tokens."""
    context = context_to_run(model, spec, phases)
    open_caches = OpenCaches(model, spec, context, phases.journal)
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
                ids = random_ids(model, spec.batch, prompt)
                for name, tokens, steps in (("prefill", prompt, 1), ("decode", answer, answer)):
                    with phases.open(name, **open_caches.grow(session, tokens)):
                        for _ in range(steps):
                            ids = model.step(ids, cache)[:, -1].float().argmax(-1, keepdim=True)
                open_caches.observe(session)
        phases.journal.progress(done, len(schedule))


def prefill(model: Model, spec: WorkloadSpec, phases: Phases) -> None:
    """Each session reads one whole prompt and generates nothing; all stay open."""
    context = context_to_run(model, spec, phases)
    open_caches = OpenCaches(model, spec, context, phases.journal)
    for session in range(spec.sessions):
        cache = open_caches.of(session)
        with phases.open("prefill", **open_caches.grow(session, context)):
            model.step(random_ids(model, spec.batch, context), cache)
        open_caches.observe(session)
        phases.journal.progress(session + 1, spec.sessions)


def fill(model: Model, spec: WorkloadSpec, phases: Phases) -> None:
    """Every session fills its context and stays open: the last token of each is decoded when all are there.

    What a cell of ``vramdoc capacity`` runs: the peak is the last prompt's, over the caches of all the others.
    """
    context = context_to_run(model, spec, phases)
    open_caches = OpenCaches(model, spec, context, phases.journal)
    for session in range(spec.sessions):
        cache = open_caches.of(session)
        with phases.open("prefill", **open_caches.grow(session, context - 1)):
            model.step(random_ids(model, spec.batch, context - 1), cache)
        phases.journal.progress(session + 1, spec.sessions)
    for session in range(spec.sessions):
        with phases.open("decode", **open_caches.grow(session, 1)):
            model.step(random_ids(model, spec.batch, 1), open_caches.of(session))
    open_caches.observe(spec.sessions - 1)


def encode(model: Model, spec: WorkloadSpec, phases: Phases) -> None:
    """Batches of drawn size and length, as a service meets them; nothing is kept between them."""
    context = context_to_run(model, spec, phases)
    batches = conversations.batches(
        context=context,
        largest=max(spec.batch, spec.sessions * 8),
        count=ENCODE_BATCHES,
        seed=spec.seed,
    )
    for done, (size, tokens) in enumerate(batches, start=1):
        with phases.open("encode", batch=size, context=tokens):
            model.encode(random_ids(model, size, tokens))
        phases.journal.progress(done, ENCODE_BATCHES)


def train(model: Model, spec: WorkloadSpec, phases: Phases) -> None:
    """A few steps of AdamW over batches of ``context`` tokens."""
    context = context_to_run(model, spec, phases)
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-5)
    for step in range(TRAIN_STEPS):
        with phases.open("step", step=step, batch=spec.batch, context=context):
            model.loss(random_ids(model, spec.batch, context)).backward()
            optimizer.step()
            optimizer.zero_grad(set_to_none=True)
        phases.journal.progress(step + 1, TRAIN_STEPS)
