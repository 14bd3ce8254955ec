"""The object graph finds exactly what the garbage collector would, calls nothing, and knows the ways through it."""

import gc
import random
import weakref

import numpy as np
import pytest

from vramdoc.record.inside.object_graph import NOBODY, ObjectGraph


def tell_off(*_):
    raise AssertionError("code of the program was run")


class Node:
    """Refers to others by attribute, list and dict."""

    def __init__(self):
        self.near, self.far, self.named = None, [], {}

    __eq__ = __hash__ = __repr__ = __bool__ = __len__ = tell_off


class Finalized(Node):
    def __del__(self):
        FINALIZED.append(1)


FINALIZED = []


def tangle(generator, size):
    """Nodes with random references; returns them all."""
    nodes = [generator.choice([Node, Finalized])() for _ in range(size)]
    for node in nodes:
        node.near = generator.choice(nodes)
        node.far = generator.sample(nodes, generator.randrange(3))
        node.named = {str(i): other for i, other in enumerate(generator.sample(nodes, 2))}
    return nodes


@pytest.fixture
def uncollected():
    gc.collect()
    gc.disable()
    yield
    gc.enable()


@pytest.mark.usefixtures("uncollected")
def test_what_is_unreachable_is_what_a_collection_returns():
    """The oracle is ``gc.collect()`` itself, over tangles of which some nodes are held and most are not."""
    generator = random.Random(7)
    kept, watched = [], []
    for size in (2, 3, 5, 8, 40, 200):
        nodes = tangle(generator, size)
        # Cut a part off: what only it held goes at once, what it still leads to is held or garbage.
        for node in nodes[: size // 2]:
            node.near, node.far, node.named = node, [], {}
        watched += [weakref.ref(node) for node in nodes]
        kept.append(nodes[0])
        kept += nodes[-1:] if size > 5 else []
        del nodes, node
    watched = [ref for ref in watched if ref() is not None]
    finalized = len(FINALIZED)
    graph = ObjectGraph(gc.get_objects())
    garbage = graph.unreachable(graph.held_from_outside())
    found = {id(graph.objects[i]) for i in np.flatnonzero(garbage)}
    expected = [id(ref()) in found for ref in watched]
    assert len(FINALIZED) == finalized
    del graph
    gc.collect()
    assert expected == [ref() is None for ref in watched]
    assert 0 < sum(expected) < len(expected)


def test_ways_are_shortest_and_stop_at_what_is_barred():
    end, short, long_, barred = ["end"], [], [], []
    short.append(end)
    long_.append(short)
    barred.append(["hidden"])
    roots = [long_, short, barred]
    graph = ObjectGraph([roots, long_, short, barred, end, barred[0]])
    parent = graph.nobody()
    closed = np.zeros(len(graph.objects), bool)
    closed[graph.index(barred)] = True
    graph.reach(np.array([graph.index(roots)]), parent, closed)
    assert [graph.objects[i] for i in graph.path(graph.index(end), parent)] == [roots, short, end]
    assert parent[graph.index(barred[0])] == NOBODY
    graph.reach_on(parent, np.zeros(len(graph.objects), bool))
    way = graph.path(graph.index(barred[0]), parent)
    assert [graph.objects[i] for i in way] == [roots, barred, barred[0]]


def test_a_cycle_is_walked_back_to_where_it_began():
    one, two = {}, []
    one["two"] = two
    two.append(one)
    alone = [two]
    graph = ObjectGraph([one, two, alone])
    everything = np.ones(3, bool)
    assert graph.cycle(0, everything) == [0, 1, 0]
    assert graph.cycle(2, everything) == []
    assert graph.cycle(0, np.array([True, False, True])) == []
