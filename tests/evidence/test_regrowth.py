"""Tensors that a line copies into larger ones are found by their lifetimes alone; batches, layers and lists are not taken for them."""

from collections import deque

import pytest

from tests.snapshot.plain import block, event, segment, snapshot
from vramdoc.evidence.callsites import sited_lifetimes
from vramdoc.evidence.regrowth import regrowth
from vramdoc.snapshot.schema import snapshot_from_plain

MIB = 1 << 20
CAT = [{"filename": "/p/q/r/serve.py", "line": 12, "name": "collect"}]
CACHE = [
    {"filename": "/usr/lib/python3/site-packages/torch/functional.py", "line": 5, "name": "cat"},
    {"filename": "/v/lib/python3.11/site-packages/transformers/cache_utils.py", "line": 90, "name": "update"},
    {"filename": "/p/q/r/serve.py", "line": 30, "name": "answer"},
]  # fmt: skip


class Program:
    """Allocations in order, as events; what is live at the end becomes segments."""

    def __init__(self):
        self.events, self.live, self.address = [], {}, 1 << 24

    def take(self, size, frames=CAT):
        self.address += 1 << 32
        self.events.append(event("alloc", self.address, size, frames=frames))
        self.live[self.address] = size
        return self.address

    def give(self, address):
        size = self.live.pop(address)
        self.events += [event(a, address, size) for a in ("free_requested", "free_completed")]

    def refuse(self, size, frames=CAT):
        self.events.append(event("oom", 1 << 20, size, frames=frames))

    def found(self):
        segments = [segment(a, [block(a, size)]) for a, size in self.live.items()]
        taken = snapshot_from_plain(snapshot(segments, self.events))
        return regrowth(taken, sited_lifetimes(taken, 0))


def grow(program, times, *, first=4 * MIB, step=2 * MIB, frames=CAT):
    size, kept = first, program.take(first, frames)
    for _ in range(times):
        size += step
        new = program.take(size, frames)
        program.give(kept)
        kept = new
    return size


def test_one_growing_tensor_is_found_with_its_formula():
    program = Program()
    last = grow(program, 10)
    program.refuse(last + 2 * MIB)
    (found,) = program.found()
    assert str(found.line) == "serve.py:12 (collect)"
    assert (found.tensors, found.times, found.per_step_bytes) == (1, 10, 2 * MIB)
    assert (found.first_bytes, found.last_bytes) == (4 * MIB, 24 * MIB)
    assert found.was_refused


def test_layers_that_grow_side_by_side_are_counted_together():
    program, layers, size = Program(), 6, 8 * MIB
    kept = deque(program.take(size, CACHE) for _ in range(layers))
    for _ in range(5):
        size += MIB
        for _ in range(layers):
            kept.append(program.take(size, CACHE))
            program.give(kept.popleft())
    (found,) = program.found()
    assert (str(found.line), str(found.site)) == (
        "transformers/cache_utils.py:90 (update)",
        "serve.py:30 (answer)",
    )
    assert (found.tensors, found.times, found.per_step_bytes) == (layers, 5, layers * MIB)
    assert not found.was_refused


def test_another_lines_failure_is_not_blamed_on_the_growing_one():
    program = Program()
    grow(program, 6)
    program.refuse(64 * MIB, CACHE)
    assert [found.was_refused for found in program.found()] == [False]


def batches(program):
    """Each step frees its own tensor before the next makes a larger one."""
    for step in range(20):
        program.give(program.take((4 + step) * MIB))


def held_batches(program):
    """The variable keeps the last batch while the next is made; sizes go up and down."""
    kept = program.take(8 * MIB)
    for step in range(20):
        new = program.take((4 + 7 * step % 11) * MIB)
        program.give(kept)
        kept = new


def layers_and_backward(program):
    """One stack makes the activations of all layers, each larger; the backward pass frees them, last first."""
    for _ in range(5):
        for made in reversed([program.take((2 + layer) * MIB) for layer in range(8)]):
            program.give(made)


def kept_list(program):
    """A list that only grows in length."""
    for step in range(20):
        program.take((4 + step) * MIB)


def small(program):
    """A counter that grows by elements."""
    grow(program, 20, first=512, step=512)


@pytest.mark.parametrize("run", [batches, held_batches, layers_and_backward, kept_list, small])
def test_what_is_no_growing_tensor_is_not_taken_for_one(run):
    program = Program()
    run(program)
    program.refuse(100 * MIB)
    assert program.found() == ()
