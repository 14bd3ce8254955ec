"""The survey: which names of the program hold its device memory at this moment, as ``Holders``.

It looks and touches nothing: no code of the program runs, no tensor lives longer than the survey, nothing is collected. In the
order of ``HolderKind`` each storage is given to the first holder that reaches it:

    running functions and modules   by the shortest chain of references from one of their names
    autograd graphs                 what the tensors found so far saved for a backward pass
    ended calls                     what only the frames of a traceback still reach
    native code                     what is alive by a reference that no Python object has
    nobody                          what only reference cycles keep, as the garbage collector would find it

Costs about 2.5 µs an object: half a second for a program that has imported torch, one for transformers.
"""

from __future__ import annotations

import gc
import time
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from types import FrameType
from typing import TYPE_CHECKING, Any

import numpy as np
import torch

from vramdoc.record.holders import Collected, Holder, HolderKind, Survey
from vramdoc.record.inside import owners
from vramdoc.record.inside.object_graph import NOBODY, ObjectGraph, Objects
from vramdoc.record.inside.owners import Place, Root
from vramdoc.record.inside.storages import allocated_bytes, has_storage, present, storage_of
from vramdoc.record.inside.tally import Name, Tally, name_of
from vramdoc.record.inside.user_line import is_recorders

if TYPE_CHECKING:
    import numpy.typing as npt

MOST_OBJECTS = 4_000_000
"""More are not looked at: ten seconds, and 500 MB of columns."""


def survey(moment: str, device: int, ending: BaseException | None = None) -> Survey | None:
    """Look at what holds the memory of ``device``; None where no tensor of the program is on it.

    ``ending`` is the exception that is ending the program: what its own traceback holds is no finding.
    """
    started = time.monotonic()
    objects = Objects()
    try:
        with torch._C.DisableTorchFunction():  # noqa: SLF001 # no ``__torch_function__`` of the program
            tensors = [
                index
                for index in objects.of_kind(has_storage)
                if storage_of(objects.all[index], device) is not None
            ]
            if not tensors:
                return None
            held, missing = _look(objects, tensors, device, ending)
        return Survey(
            moment=moment,
            device=device,
            allocated_bytes=allocated_bytes(device),
            holders=held,
            objects=len(objects),
            seconds=round(time.monotonic() - started, 3),
            missing=missing,
        )
    finally:
        # Frames are among the objects, this function's too, whose variables keep the objects: a cycle, until it is cut.
        objects.all.clear()


def _look(
    objects: Objects, tensors: Sequence[int], device: int, ending: BaseException | None
) -> tuple[list[Holder], str]:
    if len(objects) > MOST_OBJECTS:
        return [], f"the program has {len(objects)} objects, more than are looked at"
    return _Survey(objects, tensors, owners.running_frames(), device).run(ending)


def collect(found: Survey) -> Collected | None:
    """Run ``gc.collect()`` and measure what it returns; None where the survey found nothing that it could.

    For the end of a program, where the interpreter would do the same next.
    """
    unreachable = {
        block
        for holder in found.holders
        if holder.kind is HolderKind.CYCLE
        for block in holder.blocks
    }
    if not unreachable:
        return None
    before, found_before = allocated_bytes(found.device), present(unreachable, found.device)
    gc.collect()
    found_after = present(unreachable, found.device)
    return Collected(
        before_bytes=before,
        after_bytes=allocated_bytes(found.device),
        found_bytes=sum(found_before.values()),
        returned_bytes=sum(
            size for block, size in found_before.items() if block not in found_after
        ),
    )


class _Survey:
    def __init__(
        self,
        objects: Objects,
        tensors: Sequence[int],
        frames: Sequence[FrameType],
        device: int,
    ) -> None:
        self.kinds, self.graph, self.objects = objects, ObjectGraph(objects.all), objects.all
        self.tensors, self.frames = tensors, frames
        self.tally = Tally(device)
        self.parent = self.graph.nobody()
        """Who led to each object, over all stages."""
        self.roots: dict[int, tuple[Root, tuple[Any, ...]]] = {}
        """The names that the first stage began at, each with what stands before it in a path."""
        running = {id(frame) for frame in frames}
        self.ended = [
            index
            for index in objects.of_kind(lambda kind: kind is FrameType)
            if id(objects.all[index]) not in running and not is_recorders(objects.all[index].f_code)
        ]
        """Frames of calls that have ended."""

    def run(self, ending: BaseException | None) -> tuple[list[Holder], str]:
        outside = self.graph.held_from_outside()
        garbage = self.graph.unreachable(outside)
        self._named()
        self._ended_calls(ending, garbage)
        self._native(outside)
        self._cycles(garbage & (self.parent == NOBODY))
        missing = "" if self.tally.saved.is_complete else "not every autograd graph could be read"
        return self.tally.holders(), missing

    def _named(self) -> None:
        """What running functions and modules reach."""
        for root, value in owners.frame_roots(self.frames):
            self.roots.setdefault(self.graph.index(value), (root, ()))
        for root, module, namespace in owners.module_roots(self.frames):
            self.roots.setdefault(self.graph.index(namespace), (root, (module,)))
        barred = np.zeros(len(self.objects), bool)
        barred[self.ended] = True
        apart = barred.copy()
        optimizers = self.kinds.of_kind(lambda kind: owners.is_kind_of(kind, torch.optim.Optimizer))
        apart[optimizers] = True
        own = [at for at, (root, _) in self.roots.items() if not root.is_installed]
        # A name of the program's own says more than one of a library that is nearer; and a parameter is the model's, although
        # an optimizer may be nearer to it.
        self.graph.reach(self._indices(own), self.parent, apart)
        self.graph.reach(self._indices(self.roots), self.parent, apart)
        self.graph.reach_on(self.parent, barred)
        names = {}
        for index, path in self._tensors_since(np.zeros(len(self.objects), bool)):
            root, before = self.roots[path[0]]
            names[index] = name_of(root, (*before, *self._at(path)))
        # What a running function uses comes before what a container would keep without it.
        order = sorted(names, key=lambda index: names[index].kind is not HolderKind.FRAME)
        self.tally.give(order, names, self.objects)

    def _ended_calls(self, ending: BaseException | None, garbage: npt.NDArray[np.bool_]) -> None:
        """What only the frames of tracebacks reach: of the exception that ends the program first, then of any other that is alive."""
        kept = {at: Name(HolderKind.TRACEBACK, "") for at in self.ended if not garbage[at]}
        for index in self.kinds.of_kind(lambda kind: owners.is_kind_of(kind, BaseException)):
            if not garbage[index]:
                self._enter(kept, HolderKind.TRACEBACK, self.objects[index], self._via(index))
        for error in _chain(ending):
            self._enter(kept, HolderKind.ERROR, error, owners.type_name(error))
        roots: dict[int, tuple[Root, Name]] = {}
        for at in sorted(kept, key=lambda at: kept[at].kind is not HolderKind.ERROR):
            frame = self.objects[at]
            place = owners.place_of_frame(frame, kept[at].place.line or frame.f_lineno)
            for variable, value in owners.variables_of(frame):
                roots.setdefault(self.graph.index(value), (Root(variable, place), kept[at]))
        names = {}
        for index, path in self._reach(roots, garbage):
            root, keeper = roots[path[0]]
            found = name_of(root, self._at(path))
            names[index] = replace(found, kind=keeper.kind, via=keeper.via, place=root.place)
        order = sorted(names, key=lambda index: names[index].kind is not HolderKind.ERROR)
        self.tally.give(order, names, self.objects)

    def _enter(
        self, kept: dict[int, Name], kind: HolderKind, error: BaseException, via: str
    ) -> None:
        for frame, line in _traceback(error):
            at = self.graph.index(frame)
            if at in kept:
                kept[at] = Name(kind, "", "", via, Place(line=line))

    def _via(self, index: int) -> str:
        """An exception, and what keeps it."""
        kind = owners.type_name(self.objects[index])
        if self.parent[index] == NOBODY:
            return f"{kind}, which is being handled"
        path = self.graph.path(index, self.parent)
        root, before = self.roots[path[0]]
        found = name_of(root, (*before, *self._at(path)))
        return f"{kind} in {found.what} of {found.owner}"

    def _native(self, outside: npt.NDArray[np.bool_]) -> None:
        """What is alive by references that no Python object has."""
        roots = dict.fromkeys(np.flatnonzero(outside).tolist())
        names = {}
        for index, path in self._reach(roots, np.zeros(len(self.objects), bool)):
            objects = self._at(path)
            root = Root(owners.type_name(objects[0]), Place())
            is_function = owners.is_a(objects[0], torch._C._FunctionBase)  # noqa: SLF001 # of every custom autograd function
            kind = HolderKind.GRAPH if is_function else HolderKind.INTERPRETER
            names[index] = Name(kind, f"`{owners.spell(root, objects)}`")
        self.tally.give(list(names), names, self.objects)

    def _cycles(self, unknown: npt.NDArray[np.bool_]) -> None:
        """What nobody reaches: under the nearest frame, or object of a class of the program's, that holds it."""
        nearest = (*self.ended, *self.kinds.of_kind(owners.is_of_program))
        tensors = set(self.tensors)
        roots = dict.fromkeys(index for index in nearest if unknown[index] and index not in tensors)
        found = list(self._reach(roots, ~unknown))
        found += self._reach(dict.fromkeys(np.flatnonzero(unknown).tolist()), ~unknown)
        described: dict[str, Name] = {}
        names = {index: self._cycle_name(path, unknown, described) for index, path in found}
        self.tally.give(list(names), names, self.objects)

    def _cycle_name(
        self, path: Sequence[int], unknown: npt.NDArray[np.bool_], described: dict[str, Name]
    ) -> Name:
        objects = self._at(path)
        nearest = objects[0]
        if type(nearest) is FrameType:
            place = owners.place_of_frame(nearest, nearest.f_lineno)
            variables = owners.variables_of(nearest)
            variable = next((name for name, value in variables if value is objects[1]), "")
            found = name_of(Root(variable, place), objects[1:])
            via = "a frame that an exception in one of its own variables keeps"
            return replace(found, kind=HolderKind.CYCLE, via=via, place=place)
        root = Root(owners.type_name(nearest), Place())
        position = owners.collection_in(objects)
        name = owners.spell(root, objects if position is None else objects[: position + 1])
        if name not in described:
            around = self._at(self.graph.cycle(path[0], unknown))
            back = owners.spell(root, around) if around else ""
            place = owners.place_of_class(nearest)
            if back:
                place = owners.filling_line(back, place, None, owners.ASSIGNS)
            via = f"`{back}` leads back to itself" if back else ""
            described[name] = Name(HolderKind.CYCLE, f"`{name}`", "", via, place)
        return described[name]

    def _reach(
        self, roots: Mapping[int, object], barred: npt.NDArray[np.bool_]
    ) -> Iterator[tuple[int, list[int]]]:
        """Walk from ``roots``; each tensor that is reached for the first time, with the path that leads to it."""
        before = self.parent != NOBODY
        self.graph.reach(self._indices(roots), self.parent, barred)
        return self._tensors_since(before)

    def _tensors_since(self, before: npt.NDArray[np.bool_]) -> Iterator[tuple[int, list[int]]]:
        for index in self.tensors:
            if self.parent[index] != NOBODY and not before[index]:
                yield index, self.graph.path(index, self.parent)

    def _indices(self, roots: Iterable[int]) -> npt.NDArray[np.intp]:
        return np.array([index for index in roots if index != NOBODY], np.intp)

    def _at(self, path: Sequence[int]) -> tuple[Any, ...]:
        return tuple(self.objects[index] for index in path)


def _traceback(error: BaseException) -> Iterator[tuple[FrameType, int]]:
    """Frames and lines of an exception's traceback, without asking the exception."""
    entry = BaseException.__dict__["__traceback__"].__get__(error)
    while entry is not None:
        yield entry.tb_frame, entry.tb_lineno
        entry = entry.tb_next


def _chain(error: BaseException | None) -> Iterator[BaseException]:
    """An exception and those that it came from or was raised while handling."""
    seen: set[int] = set()
    waiting = [error]
    while waiting:
        current = waiting.pop()
        if current is None or id(current) in seen:
            continue
        seen.add(id(current))
        yield current
        waiting += [
            BaseException.__dict__[name].__get__(current) for name in ("__cause__", "__context__")
        ]
