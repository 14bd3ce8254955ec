"""Of many ranks the one that stands out is named, with the lines that hold its excess."""

import pytest

from vramdoc.evidence.attribution import Site
from vramdoc.evidence.ranks import RankSummary, compare_ranks
from vramdoc.evidence.usage import Levels

GIB = 1 << 30
A, B, LEAK = Site("train.py", 1, "a"), Site("train.py", 2, "b"), Site("train.py", 31, "log")


def rank(number, active, sites, *, failed=False):
    levels = Levels(requested=active, allocated=active, active=active, reserved=active)
    return RankSummary(
        rank=number,
        name=f"r{number}",
        peak=levels,
        end=levels,
        failed=failed,
        sites=tuple(sites.items()),
    )


def test_the_rank_that_leaks_is_named_with_its_line():
    usual = {A: 6 * GIB, B: 2 * GIB}
    ranks = [rank(n, 8 * GIB, usual) for n in (0, 1, 2)]
    found = compare_ranks([*ranks, rank(3, 12 * GIB, {A: 6 * GIB, LEAK: 4 * GIB, B: 2 * GIB})])
    assert found.outlier.rank == 3
    assert found.outlier.over_bytes == 4 * GIB
    assert [(line.site, line.bytes) for line in found.outlier.sites] == [(LEAK, 4 * GIB)]
    assert found.median_active_peak == 8 * GIB


def test_two_ranks_are_enough():
    found = compare_ranks([rank(1, 8 * GIB, {A: 8 * GIB}), rank(0, 5 * GIB, {A: 5 * GIB})])
    assert found.outlier.rank == 1
    assert [summary.rank for summary in found.summaries] == [0, 1]


def test_uneven_batches_are_no_outlier():
    found = compare_ranks([rank(0, 100 * GIB, {}), rank(1, 104 * GIB, {}), rank(2, 101 * GIB, {})])
    assert found.outlier is None


@pytest.mark.parametrize("count", [0, 1])
def test_one_rank_has_nothing_to_stand_out_from(count):
    assert compare_ranks([rank(n, GIB, {}) for n in range(count)]) is None
