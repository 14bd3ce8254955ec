"""serve: sessions arrive, wait or are turned away, talk, are cancelled, are abandoned. The schedule is ``arrivals``'.

What it reports: the most that was open, how many waited and were turned away under the limit, what cleanup returned to
the allocator, what abandoned sessions kept, and how much of the input repeated an earlier prefix.
"""

from __future__ import annotations

import torch

from vramdoc.workload.arrivals import Counts, arrivals, play
from vramdoc.workload.lengths import DEFAULT, requests
from vramdoc.workload.models import Model
from vramdoc.workload.sessions import OpenCaches, Phases, context_to_run, random_ids
from vramdoc.workload.spec import WorkloadSpec


def serve(model: Model, spec: WorkloadSpec, phases: Phases) -> None:
    """Play ``spec.arrivals`` sessions with at most ``spec.sessions`` open; as many again may wait."""
    context = context_to_run(model, spec, phases)
    coming = arrivals(requests(spec.lengths, spec.arrivals, spec.seed), context, spec.seed)
    open_caches = OpenCaches(model, spec, context, phases.journal)
    counts = Counts()
    most_open = returned = kept_peak = steps = 0
    left: set[int] = set()
    total = sum(1 + arrival.answer for arrival in coming)
    try:
        with phases.open("serve", limit=spec.sessions, arrivals=len(coming)):
            for event in play(coming, limit=spec.sessions, queue=spec.sessions, counts=counts):
                session, arrival = event.arrival.session, event.arrival
                match event.kind:
                    case "admit":
                        open_caches.grow(session, arrival.request.input)
                        model.step(
                            random_ids(model, spec.batch, arrival.request.input),
                            open_caches.of(session),
                        )
                        most_open = max(most_open, len(open_caches.lengths))
                    case "token":
                        open_caches.grow(session, 1)
                        model.step(random_ids(model, spec.batch, 1), open_caches.of(session))
                        gone = (
                            arrival.end == "abandoned"
                            and open_caches.lengths[session]
                            == arrival.request.input + arrival.answer
                        )
                        if gone:
                            left.add(session)
                            kept_peak = max(kept_peak, open_caches.held_bytes(left))
                    case _:
                        before = torch.cuda.memory_allocated()
                        left.discard(session)
                        open_caches.drop(session)
                        returned += before - torch.cuda.memory_allocated()
                steps += event.kind != "drop"
                phases.journal.progress(steps, total)
    finally:  # what was seen until memory ran out is the answer too
        phases.journal.observe(
            "serve",
            lengths=spec.lengths or DEFAULT, arrived=counts.arrived, admitted=counts.admitted, waited=counts.waited,
            turned_away=counts.turned_away, finished=counts.finished, cancelled=counts.cancelled,
            abandoned=counts.abandoned, most_open=most_open, returned_bytes=returned, abandoned_kept_bytes=kept_peak,
            still_allocated_bytes=torch.cuda.memory_allocated(), input_tokens=counts.prefixes.input_tokens,
            repeated_prefix_tokens=counts.prefixes.repeated_tokens,
        )  # fmt: skip
