"""A trial decides between verified, refuted and not tried; nothing else does."""

from __future__ import annotations

import pytest

from vramdoc.errors import ChildProblem
from vramdoc.facts import Source
from vramdoc.prescribe.prescription import Prescription, Verification, VerificationStatus
from vramdoc.prescribe.verify import DRIVER_PAGE, RunOutcome, Trial, try_out

GIB = 1 << 30


def candidate(
    name: str = "RX-A", *, alloc_conf: str | None = "a:1", change: dict | None = None
) -> Prescription:
    return Prescription(
        id=name, title=name, change="", serves=("fragmentation",), risk="", alloc_conf=alloc_conf,
        workload_change=change or {},
        verification=Verification(status=VerificationStatus.NOT_TRIED, command="vramdoc ..."),
    )  # fmt: skip


def outcome(exit_kind: str, reserved: int | None = GIB) -> RunOutcome:
    return RunOutcome(exit=exit_kind, reserved_peak=reserved, active_peak=None)


def trial(before: RunOutcome, after: RunOutcome | Exception, *, workload: bool = True) -> Trial:
    def run(_conf, _changes):
        if isinstance(after, Exception):
            raise after
        return after

    return Trial(
        method="rerun",
        source=Source.VIRTUAL_GPU,
        run=run,
        can_change_workload=workload,
        before=before,
    )


@pytest.mark.parametrize(
    ("before", "after", "expected"),
    [
        (outcome("oom"), outcome("success"), VerificationStatus.VERIFIED),
        (outcome("oom"), outcome("oom"), VerificationStatus.REFUTED),
        (outcome("cublas"), outcome("oom"), VerificationStatus.REFUTED),
        (outcome("success"), outcome("oom"), VerificationStatus.REFUTED),
        (outcome("success"), outcome("success", GIB - DRIVER_PAGE), VerificationStatus.VERIFIED),
        (outcome("success"), outcome("success", GIB - DRIVER_PAGE + 1), VerificationStatus.REFUTED),
        (outcome("success", None), outcome("success", None), VerificationStatus.NOT_TRIED),
        (outcome("oom"), ChildProblem("it could not start"), VerificationStatus.NOT_TRIED),
    ],
)
def test_status_follows_from_what_happened(before, after, expected) -> None:
    [tried] = try_out([candidate()], trial(before, after), limit=1)
    assert tried.verification.status is expected
    assert tried.verification.reason


def test_a_tried_prescription_names_by_what_and_keeps_both_sides() -> None:
    [tried] = try_out([candidate()], trial(outcome("oom"), outcome("success", 7)), limit=1)
    assert tried.verification.by is Source.VIRTUAL_GPU
    assert tried.verification.before == {"exit": "oom", "oom": True, "reserved_peak": GIB}
    assert tried.verification.after == {"exit": "success", "oom": False, "reserved_peak": 7}


def test_no_more_than_the_limit_are_tried_and_verified_ones_come_first() -> None:
    results = iter([outcome("oom"), outcome("success")])
    lottery = Trial(
        method="rerun", source=Source.VIRTUAL_GPU, run=lambda *_: next(results), can_change_workload=True,
        before=outcome("oom"),
    )  # fmt: skip
    tried = try_out([candidate("A"), candidate("B"), candidate("C")], lottery, limit=2)
    assert [p.id for p in tried] == ["B", "C", "A"]


def test_a_workload_change_is_not_tried_where_only_the_config_can_change() -> None:
    change = candidate(alloc_conf=None, change={"cache": "static"})
    [tried] = try_out([change], trial(outcome("oom"), outcome("success"), workload=False), limit=1)
    assert tried.verification.status is VerificationStatus.NOT_TRIED


def test_without_any_way_to_try_everything_stays_not_tried() -> None:
    [tried] = try_out([candidate()], None, limit=5)
    assert tried.verification.status is VerificationStatus.NOT_TRIED
