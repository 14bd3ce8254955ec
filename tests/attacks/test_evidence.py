"""Measuring never fails, whatever a snapshot claims: sizes beyond any device, blocks on one another, time running backwards."""

import pickle

from hypothesis import given

from tests.snapshot.plain import snapshots
from vramdoc.evidence.build import measured, summarise
from vramdoc.evidence.case import Case
from vramdoc.evidence.diff import compare
from vramdoc.evidence.ranks import compare_ranks
from vramdoc.snapshot.schema import snapshot_from_plain


@given(snapshots, snapshots)
def test_any_two_snapshots_are_measured_and_compared(one, other):
    cases = [
        measured(Case(kind="snapshot", name=name, snapshot=snapshot_from_plain(data)))
        for name, data in (("one", one), ("other", other))
    ]
    for case in cases:
        assert case.usage.peak.reserved >= case.usage.end.reserved
        assert case.usage.peak.requested >= case.usage.end.requested
        assert case.fragmentation.inactive_bytes >= case.fragmentation.returnable_bytes
        assert pickle.loads(pickle.dumps(case.usage)) == case.usage
    compare(*cases)
    compare_ranks([summarise(case, rank) for rank, case in enumerate(cases)])


def test_addresses_at_the_end_of_the_range_are_survived():
    blocks = [{"size": 512, "state": "active_allocated"}] * 2
    data = {
        "segments": [
            {"address": (1 << 63) - 1, "total_size": 1024, "blocks": [dict(b) for b in blocks]}
        ]
    }
    case = measured(Case(kind="snapshot", name="end", snapshot=snapshot_from_plain(data)))
    assert case.usage.end.active == 1024
