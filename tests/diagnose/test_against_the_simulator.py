"""Messages of the simulated allocator, whose state is known: every figure comes back, and no verdict contradicts a rerun under expandable segments."""

from __future__ import annotations

import random

import pytest

from tests.diagnose.builders import text_case, verdict
from vramdoc.allocator import AllocatorConfig, CachingAllocator, Device, OutOfMemory
from vramdoc.allocator.releases import RULES as RELEASES
from vramdoc.crashlog import parse
from vramdoc.diagnose.verdict import Confidence, Outcome

MIB = 1 << 20
CAPACITY = 2 << 30


def run(seed: int, release: str, conf: str = "", *, largest: int = 200) -> tuple[int, OutOfMemory]:
    """Allocate and free at random until the device is full; (step, the error)."""
    chance = random.Random(seed)
    allocator = CachingAllocator(
        AllocatorConfig.parse(conf, release=release), Device(capacity=CAPACITY), release=release
    )
    live: list[int] = []
    for step in range(20_000):
        if live and chance.random() < 0.4:
            allocator.free(live.pop(chance.randrange(len(live))))
        size = chance.choice((chance.randrange(1, MIB), chance.randrange(MIB, largest * MIB)))
        try:
            live.append(allocator.malloc(size, stream=0))
        except OutOfMemory as error:
            return step, error
    raise AssertionError("the script never filled the device")


@pytest.mark.parametrize("release", RELEASES)
@pytest.mark.parametrize("seed", range(3))
def test_every_figure_of_every_releases_message_is_read_back(release: str, seed: int):
    _, error = run(seed, release)
    figures = error.figures
    assert figures is not None
    (incident,) = parse(f"torch.OutOfMemoryError: {error.message}\n").incidents
    for name, size in (
        ("requested", figures.tried),
        ("total", figures.total),
        ("free", figures.free),
        ("allocated", figures.allocated),
        ("unallocated", figures.unallocated),
    ):
        reading = incident.readings[name]
        assert abs(reading.value - size) <= reading.tolerance, name
    oldest, newest = incident.wording.split("-")[1].split("..")
    number = tuple(map(int, release.split(".")))
    assert tuple(map(int, oldest.split("."))) <= number
    assert not newest or number <= tuple(map(int, newest.split(".")))


@pytest.mark.parametrize("seed", range(40))
def test_a_sure_true_capacity_is_never_rescued_by_expandable_segments(seed: int):
    step, error = run(seed, "2.14")
    case = text_case(error.message)
    found = verdict(case, "true-capacity")
    if (
        found.outcome is Outcome.CONFIRMED
        and found.confidence is Confidence.HIGH
        and error.figures.tried > 20 * MIB
    ):
        later, _ = run(seed, "2.14", "expandable_segments:True")
        assert later <= step, found.summary


def test_plain_fragmentation_is_rescued_by_expandable_segments():
    """Of the failures that are called plain fragmentation, a rerun under expandable segments gets further in nearly all."""
    called = rescued = 0
    for seed in range(60):
        step, error = run(seed, "2.14", largest=400)
        found = verdict(text_case(error.message), "fragmentation")
        if found.outcome is Outcome.CONFIRMED and found.confidence is Confidence.MEDIUM:
            called += 1
            rescued += run(seed, "2.14", "expandable_segments:True", largest=400)[0] > step
    assert called >= 5
    assert rescued >= 0.9 * called
