"""A survey joined with the snapshot of its moment: bytes are the snapshot's, lines are those that allocated."""

import json
import shutil
from pathlib import Path

import pytest

from tests.snapshot.plain import block, segment, snapshot
from vramdoc.evidence.build import case_from_recording
from vramdoc.evidence.callsites import sited_lifetimes
from vramdoc.evidence.holders import holders
from vramdoc.record.holders import Holder, HolderKind, Survey
from vramdoc.record.recording import Recording
from vramdoc.snapshot.schema import snapshot_from_plain

MIB = 1 << 20
LINE = {"filename": "/p/q/r/train.py", "line": 10, "name": "step"}
OTHER = {"filename": "/p/q/r/train.py", "line": 12, "name": "step"}


def held_by(blocks, kind=HolderKind.CONTAINER, **changes):
    return Holder(kind=kind, what="list `kept`", owner="train()", file="/p/q/r/train.py", line=30, function="train",
                  bytes=1, count=len(blocks), blocks=blocks, **changes)  # fmt: skip


def joined(*found, device=0):
    taken = snapshot_from_plain(
        snapshot(
            [
                segment(1 << 30, [block(1 << 30, 4 * MIB, requested=3 * MIB, frames=[LINE])]),
                segment(2 << 30, [block(2 << 30, 2 * MIB, frames=[OTHER])]),
                segment(3 << 30, [block(3 << 30, 8 * MIB, frames=[LINE], state="inactive")]),
            ]
        )
    )
    survey = Survey(moment="oom", device=device, allocated_bytes=0, holders=found)
    return holders(survey, taken, sited_lifetimes(taken, 0))


def test_bytes_are_the_blocks_and_lines_those_that_allocated_them():
    found = joined(held_by([1 << 30, 2 << 30]))
    (entry,) = found.held
    assert entry.bytes == 6 * MIB
    assert [(str(use.site), use.bytes) for use in entry.sites] == [
        ("train.py:10 (step)", 4 * MIB),
        ("train.py:12 (step)", 2 * MIB),
    ]
    assert str(entry.place) == "train.py:30 (train)"
    assert entry.bytes_at(entry.sites[1].site) == 2 * MIB
    assert found.live_bytes == 6 * MIB


def test_what_is_not_live_in_the_snapshot_is_held_by_nobody():
    assert joined(held_by([3 << 30]), held_by([5 << 30])).held == ()


def test_a_survey_of_another_device_says_nothing():
    assert joined(held_by([1 << 30]), device=1).held == ()


def test_the_largest_comes_first_and_kinds_can_be_asked_for():
    found = joined(held_by([2 << 30]), held_by([1 << 30], HolderKind.CYCLE))
    assert [entry.bytes for entry in found.held] == [4 * MIB, 2 * MIB]
    assert [entry.bytes for entry in found.of(HolderKind.CYCLE)] == [4 * MIB]


RECORDING = Path(__file__).parents[1] / "report" / "recordings" / "leak"
WHOLE = {
    "moment": "oom",
    "device": 0,
    "allocated_bytes": 1,
    "holders": [
        {"kind": "cycle", "what": "x", "bytes": 1, "count": 1, "blocks": [1], "later": "more"}
    ],
}


@pytest.mark.parametrize(
    "text",
    ["", "[]", "[" * 100_000, '{"moment": "oom"}', json.dumps({**WHOLE, "holders": [{"kind": "?"}]}),
     json.dumps({**WHOLE, "holders": [{"kind": "cycle", "what": 1, "bytes": "1", "count": 1}]})],
)  # fmt: skip
def test_a_survey_that_cannot_be_read_is_as_good_as_none(tmp_path, text: str):
    shutil.copytree(RECORDING, tmp_path / "r")
    for name in ("holders.json", "holders-oom.json"):
        (tmp_path / "r" / name).write_text(text)
    assert case_from_recording(Recording(tmp_path / "r")).holders is None


def test_a_survey_of_a_later_version_is_read_as_far_as_it_is_known(tmp_path):
    shutil.copytree(RECORDING, tmp_path / "r")
    for name in ("holders.json", "holders-oom.json"):
        (tmp_path / "r" / name).write_text(json.dumps(WHOLE))
    found = case_from_recording(Recording(tmp_path / "r")).holders
    assert (found.moment, found.held) == ("oom", ())
