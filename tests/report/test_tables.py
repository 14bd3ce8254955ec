"""Config comparisons and differences: the contract of their JSON, their widths, and nothing private in them."""

from __future__ import annotations

import json

import pytest

from vramdoc.evidence.diff import Change, Diff, Difference
from vramdoc.facts import Source
from vramdoc.report.comparison import (
    Comparison,
    ConfigRow,
    render_comparison,
    render_comparison_json,
    render_comparison_markdown,
)
from vramdoc.report.difference import (
    render_difference,
    render_difference_json,
    render_difference_markdown,
)
from vramdoc.report.privacy import redact

GIB = 1 << 30


def row(config: str, reserved: int | None, *, oom: bool = False, note: str = "") -> ConfigRow:
    """One config's outcome."""
    return ConfigRow(
        config=config, reserved_peak=reserved, active_peak=None if reserved is None else GIB, oom=oom,
        device_alloc=None if reserved is None else 12, device_free=None if reserved is None else 3,
        source=Source.REPLAYED, note=note,
    )  # fmt: skip


COMPARISON = Comparison(
    rows=(
        row("expandable_segments:True", 2 * GIB),
        row("", 3 * GIB, oom=True, note="out of memory at request 812"),
        row("backend:cudaMallocAsync", None, note="cannot be replayed"),
    ),
    target_name="chat", sentence="The first one fits", workload="--workload chat --seed 0", device="NVIDIA GeForce RTX 3060 (virtual)",
    command="vramdoc compare-alloc-configs chat",
)  # fmt: skip

DIFFERENCE = Diff(
    before="a", after="/home/ann/runs/b.pickle",
    circumstances=(Difference(name="torch", before="2.9.1", after="2.14.1"), Difference(name="exit", before="", after="oom")),
    levels=(Change(name="reserved_peak", before=2 * GIB, after=3 * GIB), Change(name="active_end", before=GIB, after=GIB)),
    sites=tuple(Change(name=f"/home/ann/p/cache.py:{i} (append)", before=0, after=(30 - i) << 20, before_count=0, after_count=i) for i in range(20)),
    phases=(), segments=(Change(name="large, stream 0, 20.00 MiB each", before=3 * GIB, after=2 * GIB, before_count=9, after_count=4),),
    missing=("b: the run left no manifest",),
)  # fmt: skip


def test_the_comparisons_json_is_the_contract() -> None:
    data = json.loads(render_comparison_json(COMPARISON))
    assert data["schema_version"] == 1
    for entry in data["configs"]:
        assert entry.keys() >= {
            "config",
            "reserved_peak",
            "active_peak",
            "oom",
            "device_alloc",
            "device_free",
            "source",
        }
    assert data["configs"][0]["reserved_peak"] == 2 * GIB
    assert data["configs"][2]["reserved_peak"] is None


@pytest.mark.parametrize("width", [60, 80, 160])
@pytest.mark.parametrize("ascii_only", [False, True])
def test_tables_keep_their_width(width: int, *, ascii_only: bool) -> None:
    for text in (
        render_comparison(COMPARISON, width=width, ascii_only=ascii_only),
        render_difference(DIFFERENCE, width=width, ascii_only=ascii_only),
    ):
        assert all(len(line) <= width for line in text.splitlines())
        assert text.isascii() or not ascii_only


def test_a_comparison_says_who_ran_who_failed_and_who_was_not_tried() -> None:
    text = render_comparison(COMPARISON, width=160)
    assert "-1.00 GiB" in text
    table = text.partition("config")[2]
    assert table.index("fits") < table.index("out of memory") < table.index("not replayed")
    assert "cannot be replayed" in render_comparison(COMPARISON, width=80)
    assert "| `expandable_segments:True` | 2.00 GiB | -1.00 GiB |" in render_comparison_markdown(
        COMPARISON
    )


def test_a_difference_begins_with_what_was_not_the_same() -> None:
    text = render_difference(DIFFERENCE, width=100)
    assert text.index("2.14.1") < text.index("peak reserved") < text.index("cache.py")
    assert "+1.00 GiB" in text
    assert "and 8 more" in text
    assert "Not compared" in text


def test_a_difference_shows_nothing_private_unless_asked() -> None:
    for render in (render_difference, render_difference_json, render_difference_markdown):
        assert "ann" not in render(redact(DIFFERENCE))
        assert "/home/ann" in render(redact(DIFFERENCE, include_private=True))


def test_a_differences_json_holds_every_change_in_bytes() -> None:
    data = json.loads(render_difference_json(DIFFERENCE))
    assert len(data["sites"]) == 20
    assert data["levels"][0] == {
        "name": "reserved_peak", "before": 2 * GIB, "after": 3 * GIB, "before_count": None, "after_count": None, "change": GIB,
    }  # fmt: skip
