"""What workloads share: phases of the journal, prompts, and the conversations that are open. It decides no schedule."""

from __future__ import annotations

from collections.abc import Collection, Iterator
from contextlib import contextmanager
from typing import Any

import torch

from vramdoc.workload.journal import Journal
from vramdoc.workload.models import Model
from vramdoc.workload.spec import WorkloadSpec


class Phases:
    """Opens the journal's phases, and empties the allocator's cache between them where the spec says so."""

    def __init__(self, spec: WorkloadSpec, journal: Journal) -> None:
        self.journal = journal
        self._empty = spec.empty_cache
        self._last = ""

    @contextmanager
    def open(self, name: str, **detail: int | float | str) -> Iterator[None]:
        """One phase of the journal."""
        if self._empty and self._last not in {"", name}:
            torch.cuda.empty_cache()
        self._last = name
        with self.journal.phase(name, **detail):
            yield


def random_ids(model: Model, batch: int, tokens: int) -> torch.Tensor:
    """A prompt; on a real device its values follow from the spec's seed."""
    return torch.randint(model.vocab, (batch, tokens), device="cuda")


def context_to_run(model: Model, spec: WorkloadSpec, phases: Phases) -> int:
    """The context to run: the model's own limit where the default goes past it."""
    if model.max_positions is None or spec.context <= model.max_positions:
        return spec.context
    phases.journal.note(
        f"context cut from {spec.context} to the model's own limit of {model.max_positions} tokens"
    )
    return model.max_positions


class OpenCaches:
    """The conversations that are open: their caches, and what the formula says that these hold."""

    def __init__(self, model: Model, spec: WorkloadSpec, context: int, journal: Journal) -> None:
        self._model, self._spec, self._journal = model, spec, journal
        self._open = model.caches(spec.cache, capacity=context, sessions=spec.sessions)
        self._caches: dict[int, Any] = {}
        self.lengths: dict[int, int] = {}

    def of(self, session: int) -> Any:
        """The session's cache, opened if it is new."""
        if session not in self._caches:
            self._caches[session] = self._open()
        return self._caches[session]

    def drop(self, session: int) -> None:
        """The session ends."""
        self._model.close_cache(self._caches.pop(session))
        del self.lengths[session]

    def held_bytes(self, sessions: Collection[int]) -> int:
        """Bytes that the caches of ``sessions`` hold on the device."""
        return sum(self._model.held_bytes(self._caches[session]) for session in sessions)

    def grow(self, session: int, tokens: int) -> dict[str, int]:
        """Count ``tokens`` more; the detail of the phase that adds them, with bytes as they are at its end."""
        self.lengths[session] = self.lengths.get(session, 0) + tokens
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
