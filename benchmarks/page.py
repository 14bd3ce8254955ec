"""How large the interactive page of a million events is, how long it takes to make, and how soon Chromium has drawn it.

    python benchmarks/page.py [EVENTS]

Two recordings: a training loop (``snapshots.py``), and the worst case, in which no two allocations are alike. Goals: at most
3 MB, drawn within 2 s. Without Chromium the last column is empty.
"""

from __future__ import annotations

import shutil
import sys
import tempfile
import time
from pathlib import Path

import numpy as np
from snapshots import write_snapshot

from vramdoc.evidence.case import Case
from vramdoc.report.contents import Report
from vramdoc.report.privacy import redact
from vramdoc.report.to_html import render_html
from vramdoc.snapshot.model import ACTIONS, BlockInfo, SegmentInfo, Snapshot, Trace
from vramdoc.snapshot.reader import read_snapshot

SLOT, SLOTS, BASE = 16 << 20, 4_000, 0x7F0000000000


def unlike(events: int, seed: int = 0) -> Snapshot:
    """Random sizes, places and lives: a third of the events each are alloc, free_requested and free_completed."""
    rng = np.random.default_rng(seed)
    count = events // 3
    start = np.arange(count) * 3.0
    end = start + 3 * rng.exponential(500, count)
    order = np.lexsort((np.tile([0, 1, 2], count), np.stack([start, end, end], 1).ravel()))
    row = np.repeat(np.arange(count), 3)[order]
    kind = np.tile(
        [ACTIONS.index(a) for a in ("alloc", "free_requested", "free_completed")], count
    )[order]
    slot = np.empty(count, np.int64)
    free = list(rng.permutation(SLOTS))
    for event, index in zip(kind.tolist(), row.tolist(), strict=True):
        if event == 0:
            slot[index] = free.pop(int(rng.integers(len(free))))
        elif event == 2:
            free.append(slot[index])
    size = rng.integers(1, SLOT, count)
    none = np.full(len(row), -1)
    trace = Trace(
        device=0, actions=ACTIONS, action=kind.astype(np.uint8), address=BASE + slot[row] * SLOT, size=size[row],
        stream=none * 0, time_us=np.arange(len(row)), pool=none.astype(np.int16), stack=none.astype(np.int32), pools=(), stacks=(),
    )  # fmt: skip
    block = BlockInfo(address=BASE, size=SLOTS * SLOT, requested_size=0, state="inactive")
    segment = SegmentInfo(
        device=0, address=BASE, total_size=SLOTS * SLOT, allocated_size=0, active_size=0, requested_size=0, stream=0,
        segment_type="large", segment_pool_id=(0, 0), is_expandable=False, blocks=(block,),
    )  # fmt: skip
    return Snapshot(segments=(segment,), traces=(trace,), allocator_settings={})


def drawn_after(page: Path) -> str:
    """Seconds from the load until the page says that it is ready, in a browser that is already open."""
    if shutil.which("chromium") is None or shutil.which("chromedriver") is None:
        return ""
    from selenium import webdriver
    from selenium.webdriver.chrome.service import Service

    options = webdriver.ChromeOptions()
    options.binary_location = shutil.which("chromium") or ""
    for argument in ("--headless=new", "--no-sandbox"):
        options.add_argument(argument)
    driver = webdriver.Chrome(options=options, service=Service(shutil.which("chromedriver")))
    try:
        started = time.perf_counter()
        driver.get(page.as_uri())
        while not driver.execute_script("return document.documentElement.dataset.ready"):
            time.sleep(0.01)
        return f"{time.perf_counter() - started:.2f} s"
    finally:
        driver.quit()


def measure(name: str, snapshot: Snapshot, folder: Path) -> None:
    case = Case(kind="snapshot", name=name, snapshot=snapshot)
    report = redact(
        Report(
            target_kind="snapshot", target_name=name, primary="healthy", headline="", verdicts=(), prescriptions=(),
            facts=(), case=case,
        )
    )  # fmt: skip
    started = time.process_time()
    html = render_html(report)
    spent = time.process_time() - started
    page = folder / f"{name}.html"
    page.write_text(html, encoding="utf-8")
    print(
        f"{name:<14} {len(html.encode()) / 1e6:6.2f} MB  made in {spent:5.2f} s CPU  drawn after {drawn_after(page)}"
    )


def main() -> None:
    events = int(sys.argv[1]) if len(sys.argv) > 1 else 1_000_000
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        write_snapshot(folder / "loop.pickle", events)
        measure("training-loop", read_snapshot(folder / "loop.pickle"), folder)
        measure("all-unlike", unlike(events), folder)


if __name__ == "__main__":
    main()
