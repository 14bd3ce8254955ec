"""A snapshot by the clock is taken as often as its cost allows."""

import pytest

from vramdoc.record.inside.watch import COST_SHARE, still_to_wait


@pytest.mark.parametrize(
    ("expected_s", "waited_s", "more_s"),
    [(0.01, 5.0, 0.0), (0.05, 5.0, 0.0), (1.0, 5.0, 95.0), (1.0, 100.0, 0.0), (5.0, 100.0, 400.0)],
)
def test_a_costly_snapshot_waits_for_its_share(
    expected_s: float, waited_s: float, more_s: float
) -> None:
    assert still_to_wait(waited_s, expected_s) == pytest.approx(more_s)
    assert expected_s <= COST_SHARE * (waited_s + more_s) + 1e-9
