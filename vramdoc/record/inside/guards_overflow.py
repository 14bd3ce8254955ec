"""Guard: a slice assignment past a buffer's end, which writes nothing and says nothing.

``cache[:, :, pos : pos + 1] = key`` with ``pos`` at the end selects no element, and torch broadcasts the key into it: the token is
lost. Filling a rest that is empty with a number is common and meant, so only a tensor with something in it counts.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Sequence
from typing import Any

import torch

from vramdoc.record.inside.user_line import calling_frame, name_in, place_of

Observe = Callable[..., None]


def install(observe: Observe) -> None:
    """Watch ``Tensor.__setitem__``; one observation a line of code."""
    original = torch.Tensor.__setitem__
    seen: set[tuple[Any, Any]] = set()

    tensor = torch.Tensor

    @functools.wraps(original)
    def watched(self: torch.Tensor, key: Any, value: Any) -> None:
        original(self, key, value)
        # A decoder comes here twice a layer and token: what cannot overflow is let go first, with as few calls as there can be.
        kind = key.__class__
        if kind is tuple:
            dimension = 0
            for part in key:
                if part.__class__ is slice:
                    start = part.start
                    if start and (start.__class__ is not int or start >= self.shape[dimension]):
                        break
                    dimension += 1
                elif part.__class__ is int:
                    dimension += 1
                else:
                    break
            else:
                return
        elif kind is slice and key.start:
            key = (key,)
        else:
            return
        if isinstance(value, tensor):
            found = _past_the_end(self.shape, key)
            if found is not None and value.numel():
                _report(observe, seen, self, *found)

    torch.Tensor.__setitem__ = watched


def _past_the_end(shape: Sequence[int], key: tuple[Any, ...]) -> tuple[int, slice] | None:
    """The dimension, and the slice that begins at or after its end; None for an index with tensors, whose dimensions torch decides."""
    dimension = 0
    for part in key:
        kind = part.__class__
        if kind is slice:
            start = part.start
            if start and start.__class__ is int and start >= shape[dimension] > 0:
                stop = part.stop
                if stop is None or (stop.__class__ is int and stop > start):
                    return dimension, part
            dimension += 1
        elif kind is int:
            dimension += 1
        elif part is Ellipsis:
            dimension += len(shape) - sum(other is not None for other in key) + 1
        elif part is not None:
            return None
    return None


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
