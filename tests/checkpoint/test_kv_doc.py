"""The table in docs/kv-cache.md is the one that the code computes."""

import re
from pathlib import Path

import pytest

from tests.checkpoint.test_kv_config import PUBLISHED
from vramdoc.checkpoint.kv_config import layout_of_config
from vramdoc.units import format_bytes

PAGE = Path(__file__).resolve().parents[2] / "docs" / "kv-cache.md"


@pytest.mark.parametrize("name", sorted(PUBLISHED.keys() - {"tiny"}))
def test_row_is_what_the_config_gives(name: str) -> None:
    layout = layout_of_config(PUBLISHED[name])
    kinds = ", ".join(sorted({layer.kind for layer in layout.layers}))
    row = f"| {name} | {kinds} | {layout.bytes_per_token:,} | {format_bytes(layout.bytes_at(8192))} | {format_bytes(layout.bytes_at(131072))} |"
    assert row in PAGE.read_text(encoding="utf-8")


def test_no_row_is_left_over() -> None:
    rows = re.findall(
        r"^\| ([\w.-]+) \| (?:full|latent|sliding|state)",
        PAGE.read_text(encoding="utf-8"),
        re.MULTILINE,
    )
    assert set(rows) == PUBLISHED.keys() - {"tiny"}
