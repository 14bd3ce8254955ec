"""Calls after which torch can no longer grow a storage that was its own, and whether they come before a use of it.

``t.numpy()`` freezes the storage of ``t`` for good, also after the array is gone; ``t.share_memory_()`` moves it to memory whose growth crashes
(torch 2.13 and 2.14). Order is that of the text: what other files call, and when, is not known.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING

from vramdoc.lint.bindings import key_of
from vramdoc.lint.literals import flag
from vramdoc.lint.reaching import ends_function
from vramdoc.lint.source import receiver

if TYPE_CHECKING:
    from vramdoc.lint.source import Source


@dataclass(frozen=True, slots=True, kw_only=True)
class Freeze:
    """A call that freezes the storage of ``target``."""

    call: ast.Call
    target: ast.expr
    shared: bool = False
    """Moved to shared memory, rather than handed to NumPy."""


def freezes(source: Source) -> Iterator[Freeze]:
    """Every such call of the file."""
    for call in source.calls_named("numpy", "__array__"):
        target = receiver(call)
        if target is not None and not (source.qualname(call.func) or "").startswith("numpy."):
            yield Freeze(call=call, target=target)
    for call in source.calls_named("asarray", "array", "ascontiguousarray"):
        name = source.qualname(call.func) or ""
        copies = name == "numpy.array" and flag(call, "copy") is not False
        if name.startswith("numpy.") and call.args and not copies and len(call.args) == 1:
            yield Freeze(call=call, target=call.args[0])
    for call in source.calls_named("share_memory_"):
        target = receiver(call)
        if target is not None:
            yield Freeze(call=call, target=target, shared=True)


def order(source: Source, event: ast.Call, use: ast.AST, roots: set[ast.AST]) -> bool | None:
    """True: ``event`` comes before ``use``. False: it may, being in another method. None: it does not."""
    if source.function(event) is not source.function(use):
        inside = source.class_of(event)
        together = inside is not None and inside is source.class_of(use)
        if together and (key_of(use) or "").startswith("self."):
            return False
        return _done_on_import(source, event, use)
    taken, here = source.flow.branches(event), source.flow.branches(use)
    if any(
        here[node] != arm if node in here else ends_function(node, arm)
        for node, arm in taken.items()
    ):
        return None
    if source.position[event] < source.position[use]:
        return True
    again = next((loop for loop in source.loops(use) if source.within(event, loop)), None)
    if again is not None and not any(source.within(root, again) for root in roots):
        return True
    return None


def _done_on_import(source: Source, event: ast.Call, use: ast.AST) -> bool | None:
    """True where ``event`` is a line of the module that runs, whatever happens, before ``use``'s function is called."""
    function = source.function(use)
    if source.function(event) is not None or function is None or source.flow.branches(event):
        return None
    called = [site for site in source.flow.call_sites(function) if source.function(site) is None]
    here = source.position[event]
    return True if all(source.position[site] > here for site in called) else None
