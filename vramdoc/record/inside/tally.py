"""Whose storages are whose: each is given once, to the first holder that asks for it, and summed under that holder's names."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import torch

from vramdoc.record.holders import MOST_BLOCKS, Holder, HolderKind
from vramdoc.record.inside import owners
from vramdoc.record.inside.owners import Place, Root
from vramdoc.record.inside.saved_tensors import SavedTensors
from vramdoc.record.inside.storages import storage_of

MOST_HOLDERS = 200
"""Kept, by bytes."""


@dataclass(frozen=True, slots=True)
class Name:
    """A holder by its names, before its bytes are known; fields as in ``Holder``."""

    kind: HolderKind
    what: str
    owner: str = ""
    via: str = ""
    place: Place = field(default_factory=Place)


@dataclass(slots=True)
class _Sum:
    blocks: dict[int, int] = field(default_factory=dict)
    """Storage address -> bytes."""
    graph_bytes: int = 0
    ends: set[int] = field(default_factory=set)
    """Identities of the graph nodes that made its tensors, and of all nodes behind such a one."""
    inner: set[int] = field(default_factory=set)


class Tally:
    """Storages of one device by holder."""

    def __init__(self, device: int) -> None:
        self.device = device
        self.saved = SavedTensors()
        self._sums: dict[Name, _Sum] = {}
        self._taken: set[int] = set()

    def give(self, order: Sequence[int], names: Mapping[int, Name], objects: Sequence[Any]) -> None:
        """Give the storages of tensors, in ``order``, to their holders; then what only their graphs keep."""
        for index in order:
            tensor = objects[index]
            total = self._sums.setdefault(names[index], _Sum())
            self._take(total, tensor)
            if tensor.is_leaf and tensor.grad is not None:
                self._take(total, tensor.grad)
        for index in order:
            total = self._sums[names[index]]
            node = objects[index].grad_fn
            if node is not None:
                total.ends.add(id(node))
            for saved in self.saved.of(objects[index], total.inner):
                total.graph_bytes += self._take(total, saved)

    def _take(self, total: _Sum, tensor: torch.Tensor) -> int:
        storage = storage_of(tensor, self.device)
        if storage is None or storage[0] in self._taken:
            return 0
        self._taken.add(storage[0])
        total.blocks[storage[0]] = storage[1]
        return storage[1]

    def holders(self) -> list[Holder]:
        """All holders, largest first."""
        found = [_holder(name, total) for name, total in self._sums.items() if total.blocks]
        found.sort(key=lambda holder: (-holder.bytes, holder.kind.value, holder.what, holder.line))
        return found[:MOST_HOLDERS]


def _holder(name: Name, total: _Sum) -> Holder:
    keeps_graph = name.kind is HolderKind.CONTAINER and total.graph_bytes
    return Holder(
        kind=HolderKind.GRAPH if keeps_graph else name.kind,
        what=name.what,
        owner=name.owner,
        via=name.via,
        file=name.place.file,
        line=name.place.line,
        function=name.place.function,
        bytes=sum(total.blocks.values()),
        graph_bytes=total.graph_bytes,
        count=len(total.blocks),
        graphs=len(total.ends - total.inner),
        blocks=tuple(total.blocks)[:MOST_BLOCKS],
    )


def name_of(root: Root, path: tuple[Any, ...]) -> Name:
    """The holder of the last object of a path."""
    position = owners.collection_in(path)
    if position is not None:
        return _name_of_collection(root, path[: position + 1])
    name = owners.spell(root, path)
    is_variable = len(path) == (1 if root.name else 3)  # a module's: module, namespace, value
    word = "variable" if is_variable else "attribute" if "." in name else "value behind"
    if any(owners.type_name(holder) == "_lru_cache_wrapper" for holder in path):
        word = "lru_cache of"
    kind = HolderKind.FRAME if is_variable and root.is_running else HolderKind.CONTAINER
    return Name(kind, f"{word} `{name}`", root.place.owner, "", root.place)


def _name_of_collection(root: Root, path: tuple[Any, ...]) -> Name:
    name, collection = owners.spell(root, path), path[-1]
    place = root.place
    if not owners.is_a(collection, torch.nn.Module):
        place = owners.filling_line(name, place, root.code)
    what = f"{owners.type_name(collection)} `{name}`"
    return Name(HolderKind.CONTAINER, what, root.place.owner, "", place)
