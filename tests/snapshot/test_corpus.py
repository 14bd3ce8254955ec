"""Public snapshots from real GPUs are read with the counts that their README derives independently."""

import re
from collections import Counter
from pathlib import Path

import pytest

from vramdoc.snapshot.reader import looks_like_snapshot, read_snapshot

pytestmark = pytest.mark.corpus


def counts_from_readme(folder: Path) -> dict[str, list[str]]:
    rows = {}
    for line in (folder / "README.md").read_text().splitlines():
        cells = [cell.strip() for cell in line.strip("|").split("|")]
        if len(cells) == 12 and cells[0].endswith(".pickle"):
            rows[cells[0]] = cells
    return rows


def test_every_public_snapshot_has_the_counts_of_its_readme(public_snapshots):
    rows = counts_from_readme(public_snapshots)
    assert len(rows) >= 10
    for name, cells in rows.items():
        snapshot = read_snapshot(public_snapshots / name)
        segments, events, reserved, allocated = cells[6], cells[8], cells[9], cells[10]
        assert len(snapshot.segments) == int(segments), name
        assert [len(trace) for trace in snapshot.traces if len(trace)] == [
            int(n) for n in re.findall(r"\d+", events) if int(n)
        ], name
        assert sum(s.total_size for s in snapshot.segments) == int(reserved), name
        assert sum(s.allocated_size for s in snapshot.segments) == int(allocated), name
        actions = Counter(event.action for trace in snapshot.traces for event in trace)
        assert actions == Counter({a: int(n) for a, n in re.findall(r'"(\w+)": (\d+)', cells[11])})


def test_every_public_snapshot_is_recognised_by_content(public_snapshots):
    for path in public_snapshots.glob("*.pickle"):
        assert looks_like_snapshot(path), path.name


def test_real_snapshots_have_no_contradictions_and_the_invented_one_has(public_snapshots):
    for path in sorted(public_snapshots.glob("*.pickle")):
        problems = read_snapshot(path).problems
        assert bool(problems) == path.name.startswith("synthetic"), (path.name, problems)
