"""The interpreter's objects as columns: who refers to whom, and what nobody can reach any more.

It looks through the garbage collector's own eyes (``gc.get_objects``, ``gc.get_referents``), so no code of the program runs: no
``__repr__``, no ``__eq__``, no attribute. It knows no tensors.

What is unreachable is found as CPython's collector finds it (Python/gc.c, ``deduce_unreachable``): an object whose references
all come from tracked objects is kept by them alone; what no object with a reference from elsewhere leads to is garbage.
Nothing is collected and no finalizer is called.
"""

from __future__ import annotations

import gc
import sys
from array import array
from collections.abc import Callable
from itertools import pairwise
from typing import TYPE_CHECKING, Any

import numpy as np

if TYPE_CHECKING:
    import numpy.typing as npt

    Indices = npt.NDArray[np.intp]

NOBODY = -1
"""The parent of a root, and of what was not reached."""


class Objects:
    """All tracked objects of one moment, held until this is dropped, and their types."""

    def __init__(self) -> None:
        self.all: list[Any] = gc.get_objects()
        kinds = np.fromiter(map(id, map(type, self.all)), np.uint64, len(self.all))
        self._order, self._starts = _groups(kinds)

    def __len__(self) -> int:
        return len(self.all)

    def of_kind(self, is_wanted: Callable[[type], bool]) -> list[int]:
        """Indices of the objects whose type ``is_wanted``, which is asked once a type."""
        found: list[int] = []
        for start, end in pairwise((*self._starts.tolist(), len(self.all))):
            if is_wanted(type(self.all[self._order[start]])):
                found += self._order[start:end].tolist()
        return sorted(found)


class ObjectGraph:
    """Objects by index; an edge leads from an object to what it refers to."""

    def __init__(self, objects: list[Any]) -> None:
        self.objects = objects
        identities = np.fromiter(map(id, objects), np.uint64, len(objects))
        self._order = np.argsort(identities)
        self._sorted = identities[self._order]
        referents, ends = array("Q"), array("Q", [0])
        for entry in objects:
            referents.extend(map(id, gc.get_referents(entry)))
            ends.append(len(referents))
        counts = np.diff(np.frombuffer(ends, np.uint64)).astype(np.intp)
        children = self._indices(np.frombuffer(referents, np.uint64))
        known = children != NOBODY
        self._children = children[known]
        parents = np.repeat(np.arange(len(objects)), counts)[known]
        counts = np.bincount(parents, minlength=len(objects))
        self._starts = np.concatenate([[0], np.cumsum(counts)])

    def index(self, entry: object) -> int:
        """The index of an object; NOBODY for one that is not tracked or came later."""
        return int(self._indices(np.array([id(entry)], np.uint64))[0])

    def reach(self, roots: Indices, parent: Indices, barred: npt.NDArray[np.bool_]) -> None:
        """Walk from ``roots`` along the edges, nearest first, and enter in ``parent`` who led to each object that is new.

        Args:
            roots: where to begin; those that were reached or are barred are left out. They lead to themselves.
            parent: shape (objects,), NOBODY where nothing led yet; changed in place.
            barred: shape (objects,), objects that must not be entered.
        """
        frontier = roots[_firsts(roots)]
        frontier = frontier[(parent[frontier] == NOBODY) & ~barred[frontier]]
        parent[frontier] = frontier
        self._spread(frontier, parent, barred)

    def reach_on(self, parent: Indices, barred: npt.NDArray[np.bool_]) -> None:
        """Walk on from all that was reached, now that less is barred."""
        self._spread(np.flatnonzero(parent != NOBODY), parent, barred)

    def _spread(self, frontier: Indices, parent: Indices, barred: npt.NDArray[np.bool_]) -> None:
        while frontier.size:
            sources, targets = self._edges_from(frontier)
            new = (parent[targets] == NOBODY) & ~barred[targets]
            sources, targets = sources[new], targets[new]
            first = _firsts(targets)
            frontier = targets[first]
            parent[frontier] = sources[first]

    def held_from_outside(self) -> npt.NDArray[np.bool_]:
        """Which objects somebody refers to who is not tracked: running code, native code; shape (objects,)."""
        probe = [[]]  # type: ignore[var-annotated] # any tracked object with one reference
        own = next(map(sys.getrefcount, probe))  # of the list that holds it, and of the call
        counts = np.fromiter(map(sys.getrefcount, self.objects), np.int64, len(self.objects))
        inner = np.bincount(self._children, minlength=len(self.objects))
        held: npt.NDArray[np.bool_] = counts - own > inner
        return held

    def unreachable(self, outside: npt.NDArray[np.bool_]) -> npt.NDArray[np.bool_]:
        """Which objects a ``gc.collect()`` would find to be garbage, given which are held from outside; shape (objects,)."""
        parent = self.nobody()
        self.reach(np.flatnonzero(outside), parent, np.zeros(len(parent), bool))
        return parent == NOBODY

    def nobody(self) -> Indices:
        """Parents before anything was reached."""
        return np.full(len(self.objects), NOBODY, np.intp)

    def cycle(self, index: int, within: npt.NDArray[np.bool_]) -> list[int]:
        """A shortest way from an object back to itself through others of ``within``, itself at both ends; empty for none."""
        parent = self.nobody()
        _, first = self._edges_from(np.array([index]))
        self.reach(first, parent, ~within)
        return [index, *self.path(index, parent)] if parent[index] != NOBODY else []

    def path(self, index: int, parent: Indices) -> list[int]:
        """From the root that leads to an object down to the object itself."""
        steps = [index]
        while parent[steps[-1]] != steps[-1]:
            steps.append(int(parent[steps[-1]]))
        return steps[::-1]

    def _indices(self, identities: npt.NDArray[np.uint64]) -> Indices:
        if not self._sorted.size:
            return np.full(len(identities), NOBODY, np.intp)
        at = np.minimum(np.searchsorted(self._sorted, identities), len(self._sorted) - 1)
        return np.where(self._sorted[at] == identities, self._order[at], NOBODY)

    def _edges_from(self, sources: Indices) -> tuple[Indices, Indices]:
        counts = self._starts[sources + 1] - self._starts[sources]
        ends = np.cumsum(counts)
        steps = np.arange(ends[-1] if len(ends) else 0)
        edges = steps + np.repeat(self._starts[sources] - ends + counts, counts)
        return np.repeat(sources, counts), self._children[edges]


def _groups(values: npt.NDArray[Any]) -> tuple[Indices, Indices]:
    """Positions of equal values side by side, each group in its order, and where each group starts.

    What ``numpy.unique`` does, which on its first call imports ``numpy.ma``: thousands of objects in a program at its limit.
    """
    order = np.argsort(values, kind="stable")
    ordered = values[order]
    starts = np.flatnonzero(np.append(True, ordered[1:] != ordered[:-1])[: len(values)])
    return order, starts


def _firsts(values: Indices) -> Indices:
    """Positions of the first of each value, in order."""
    order, starts = _groups(values)
    return np.sort(order[starts])
