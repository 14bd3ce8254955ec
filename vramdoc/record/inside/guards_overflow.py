"""Guard: a slice assignment past a buffer's end, which writes nothing and says nothing.

``cache[:, :, pos : pos + 1] = key`` with ``pos`` at the end selects no element, and torch broadcasts the key into it: the token is
lost. Filling a rest that is empty with a number is common and meant, so only a tensor with something in it counts.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterator
from typing import Any

import torch

from vramdoc.record.inside.user_line import calling_frame, name_in, place_of

Observe = Callable[..., None]


def install(observe: Observe) -> None:
    """Watch ``Tensor.__setitem__``; one observation a line of code."""
    original = torch.Tensor.__setitem__
    seen: set[tuple[Any, Any]] = set()

    @functools.wraps(original)
    def watched(self: torch.Tensor, key: Any, value: Any) -> None:
        original(self, key, value)
        if isinstance(value, torch.Tensor):
            for dimension, part in _slices(self, key):
                if _is_past_the_end(part, self.size(dimension)) and value.numel():
                    _report(observe, seen, self, dimension, part)

    torch.Tensor.__setitem__ = watched


def _slices(tensor: torch.Tensor, key: Any) -> Iterator[tuple[int, slice]]:
    """The slices with a start in an index made of integers, slices, None and an ellipsis, with the dimension of each."""
    if type(key) is slice:
        if key.start is not None:
            yield 0, key
        return
    if type(key) is not tuple or not any(
        type(part) is slice and part.start is not None for part in key
    ):
        return
    if not all(part is None or part is Ellipsis or type(part) in {slice, int} for part in key):
        return  # an index tensor: which dimension is whose is torch's business
    named = sum(part is not None and part is not Ellipsis for part in key)
    dimension = 0
    for part in key:
        if part is Ellipsis:
            dimension += tensor.dim() - named
        elif part is not None:
            if type(part) is slice and part.start is not None:
                yield dimension, part
            dimension += 1


def _is_past_the_end(part: slice, size: int) -> bool:
    start, stop = part.start, part.stop
    return bool(
        type(start) is int
        and start >= size > 0
        and (stop is None or (type(stop) is int and stop > start))
    )


def _report(
    observe: Observe, seen: set[tuple[Any, Any]], tensor: torch.Tensor, dimension: int, part: slice
) -> None:
    frame = calling_frame()
    place = place_of(frame)
    where = place.get("file"), place.get("line")
    if where in seen:
        return
    seen.add(where)
    observe(
        "cache-overflow",
        tensor=name_in(frame, tensor),
        shape=list(tensor.size()),
        dimension=dimension,
        start=part.start,
        stop=part.stop,
        size=tensor.size(dimension),
        **place,
    )
