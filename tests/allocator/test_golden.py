"""Every golden script under every release: the simulator prints what the real allocators printed, line by line.

The order in which several streams' events complete hangs on a hash map inside PyTorch; it is simulated, so it is compared too."""

from __future__ import annotations

import gzip
import json
from pathlib import Path

import pytest

from tests.allocator.golden_script import run_script

RELEASES = ("2.4", "2.5", "2.6", "2.7", "2.8", "2.9", "2.10", "2.11", "2.12", "2.13", "2.14", "2.15")  # fmt: skip


@pytest.mark.corpus
@pytest.mark.parametrize("release", RELEASES)
def test_every_output_line_equals_the_real_allocators(corpus: Path, release: str) -> None:
    compared = 0
    with gzip.open(corpus / "golden" / "allocator-2.4-to-2.15.jsonl.gz", "rt") as lines:
        for case in map(json.loads, lines):
            expected = next(
                (o["output"] for o in case["outcomes"] if release in o["releases"]), None
            )
            if expected is None:
                continue
            actual = run_script(case["script"], release)
            assert actual == expected, f"seed {case['seed']}, config {case['config']!r}"
            compared += 1
    assert compared >= 520
