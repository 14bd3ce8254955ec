"""The page's columns decode to what was packed, and the page says what it leaves out."""

from __future__ import annotations

import base64
import json
import zlib
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.report.samples import SAMPLES
from tests.report.traces import stepping_case
from vramdoc.evidence.lifetimes import lifetimes
from vramdoc.report import page_data as module
from vramdoc.report.page_data import packed, page_data
from vramdoc.report.to_html import render_html


def unpacked(text: str) -> list[int]:
    """Plain LEB128, written apart from the packer."""
    values, value, shift = [], 0, 0
    for byte in zlib.decompress(base64.b64decode(text)):
        value |= (byte & 127) << shift
        shift += 7
        if byte < 128:
            values.append(value)
            value, shift = 0, 0
    return values


@given(st.lists(st.integers(0, 2**62)))
def test_columns_decode_to_what_was_packed(values: list[int]) -> None:
    assert unpacked(packed(values)) == values


def test_allocations_are_the_lifetimes() -> None:
    case = stepping_case()
    data = page_data(case)
    assert data is not None
    columns = json.loads(data.json)["allocations"]
    own = lifetimes(case.oom_snapshot, 0)
    started, running = [], 0
    for step in unpacked(columns["started"]):
        running += step
        started.append(running - 1)
    assert started == own.started.tolist()
    assert unpacked(columns["life"]) == (own.ended - own.started).tolist()
    sizes = unpacked(columns["kind_size"])
    assert [sizes[kind] for kind in unpacked(columns["kind"])] == own.size.tolist()


def test_what_does_not_fit_is_left_out_and_said_but_never_what_a_button_shows(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    case = stepping_case()
    monkeypatch.setattr(module, "BUDGET", 1_500)
    data = page_data(case)
    assert data is not None
    assert 0 < data.left_out < data.allocations
    columns = json.loads(data.json)["allocations"]
    assert columns["count"] == data.allocations - data.left_out
    started, running = [], 0
    for step in unpacked(columns["started"]):
        running += step
        started.append(running - 1)
    own = lifetimes(case.oom_snapshot, 0)
    for event in data.moments.values():
        kept = sum(
            start <= event < start + life
            for start, life in zip(started, unpacked(columns["life"]), strict=True)
        )
        assert kept == len(own.live_after(event))
    html = render_html(replace(SAMPLES["fragmentation"](), case=case))
    assert f"{data.left_out} of {data.allocations} allocations" in html


def test_nothing_to_draw_is_no_error() -> None:
    assert page_data(None) is None
    assert page_data(SAMPLES["crash-text"]().case) is None
    data = page_data(SAMPLES["hostile"]().case)
    assert data is not None
    assert not data.has_trace
