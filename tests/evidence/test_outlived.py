"""What a session left behind is counted when two more have ended: by its own stretches of time, and only where most leave something."""

import pytest

from tests.snapshot.plain import block, event, segment, snapshot
from vramdoc.evidence.callsites import sited_lifetimes
from vramdoc.evidence.outlived import outlived
from vramdoc.record.manifest import Phase
from vramdoc.snapshot.schema import snapshot_from_plain

MIB = 1 << 20
CACHE = {"filename": "/p/q/r/serve.py", "line": 7, "name": "answer"}


def serving(lives: list[int], *, name="request {}", session=False):
    """Sessions one after another; the cache of each is freed after ``lives`` further sessions (a negative number: never)."""
    events, phases, live = [], [], []
    now = 1000
    for number, keep in enumerate(lives):
        start = now
        address = (number + 1) << 30
        now += 1
        events.append(event("alloc", address, 2 * MIB, frames=[CACHE], time_us=now))
        live.append((address, number + keep if keep >= 0 else None))
        for item in [item for item in live if item[1] == number]:
            live.remove(item)
            for action in ("free_requested", "free_completed"):
                now += 1
                events.append(event(action, item[0], 2 * MIB, time_us=now))
        now += 1
        detail = {"session": number} if session else {}
        phases.append(
            Phase(name=name.format(number), started_us=start, ended_us=now, detail=detail)
        )
        now += 1
    segments = [segment(address, [block(address, 2 * MIB)]) for address, _ in live]
    taken = snapshot_from_plain(snapshot(segments, events))
    return outlived(taken, sited_lifetimes(taken, 0), phases)


def test_caches_that_stay_are_counted_by_session_and_by_line():
    found = serving([-1] * 10)
    # The first fills caches, and two must have ended after it.
    assert (found.name, found.sessions, found.kept_sessions) == ("request", 7, 7)
    assert (found.per_session_bytes, found.live_bytes) == (2 * MIB, 14 * MIB)
    ((site, size, count),) = [(str(use.site), use.bytes, use.count) for use in found.sites]
    assert (site, size, count) == ("serve.py:7 (answer)", 14 * MIB, 7)


def test_sessions_may_be_told_by_a_number_beside_the_name():
    assert serving([-1] * 10, name="turn", session=True).name == "session"


@pytest.mark.parametrize("keep", [0, 1, 2])
def test_what_goes_with_the_session_or_with_the_next_two_is_no_finding(keep):
    assert serving([keep] * 12) is None


def test_a_session_that_stays_now_and_then_is_no_finding():
    assert serving([-1, 0, 0, -1, 0, 0, 0, -1, 0, 0, 0, 0]) is None


def test_one_that_lets_go_now_and_then_is_forgiven():
    assert serving([-1, -1, 0, -1, -1, -1, -1, -1, -1, -1]).kept_sessions == 6


def test_too_few_sessions_show_nothing():
    assert serving([-1] * 6) is None


def test_phases_without_a_number_are_steps_and_not_sessions():
    assert serving([-1] * 10, name="step") is None
