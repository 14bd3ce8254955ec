"""Golden scripts under every release: the simulator prints what the real allocators printed, line by line.

The order in which several streams' events complete hangs on a hash map inside PyTorch; it is simulated, so it is compared too.
"""

from __future__ import annotations

import gzip
import json
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.allocator.golden_script import run_script

RELEASES = ("2.4", "2.5", "2.6", "2.7", "2.8", "2.9", "2.10", "2.11", "2.12", "2.13", "2.14", "2.15")  # fmt: skip
POOLS = Path(__file__).parent / "data" / "pools-2.4-to-2.14.jsonl.gz"


def cases(path: Path, release: str) -> Iterator[tuple[dict[str, Any], list[str]]]:
    """Scripts of the file that ran under ``release``, and what they printed."""
    with gzip.open(path, "rt") as lines:
        for case in map(json.loads, lines):
            for outcome in case["outcomes"]:
                if release in outcome["releases"]:
                    yield case, outcome["output"]


@pytest.mark.corpus
@pytest.mark.parametrize("release", RELEASES)
def test_every_output_line_equals_the_real_allocators(corpus: Path, release: str) -> None:
    compared = 0
    for case, expected in cases(corpus / "golden" / "allocator-2.4-to-2.15.jsonl.gz", release):
        assert run_script(case["script"], release) == expected, (
            f"seed {case['seed']}, config {case['config']!r}"
        )
        compared += 1
    assert compared >= 520


@pytest.mark.parametrize("release", [r for r in RELEASES if r not in {"2.13", "2.15"}])
def test_private_pools_do_as_the_real_allocators_did(release: str) -> None:
    """MemPools (nested, use_on_oom, no_split, dropped), graph captures and their out-of-memory texts.

    Made by the harness that made the golden traces, with words for pools added; file and line of assertions are left out.
    """
    compared = 0
    for case, expected in cases(POOLS, release):
        lines = [
            re.sub(r' at "[^"]*":\d+', "", line)
            for line in run_script(case["script"], release, pools=True)
        ]
        assert lines == expected, f"seed {case['seed']}, config {case['config']!r}"
        compared += 1
    assert compared == 42
