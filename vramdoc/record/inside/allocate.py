"""A child that puts recorded requests to torch's own allocator, one by one, and reports what became of them.

    python -m vramdoc.record.inside.allocate FOLDER

``FOLDER/requests.npz`` holds the columns and ``FOLDER/job.json`` the rest; the answer is written to ``FOLDER/outcome.json``. The
config is in the environment. Started by ``replay.virtual`` and by nobody else; it runs no model and no code of the person's.
"""

from __future__ import annotations

import json
import sys
from contextlib import nullcontext
from pathlib import Path
from typing import Any

import numpy as np
import torch

from vramdoc.virtual_gpu.inside import prepare_torch

ALLOC, FREE, HOLD, COMPLETE, EMPTY_CACHE, FAILED = range(6)
"""Codes of ``replay.requests.Op``."""


class Requests:
    """The state of one replay."""

    def __init__(self, columns: Any, job: dict[str, Any]) -> None:
        self.columns = columns
        self.job = job
        self.address = [0] * job["blocks"]
        self.streams = {0: 0}
        self.keep: list[Any] = []
        self.pools: dict[int, Any] = {}
        self.avoided = 0
        self.failed: int | None = None
        self.peak: dict[str, int] = {}
        self.note_peak(-1)

    def run(self) -> int:
        """Carry the operations out; returns how many."""
        names = ("op", "block", "size", "stream", "pool")
        rows = zip(*(self.columns[name].tolist() for name in names), strict=True)
        for number, (op, block, size, stream, pool) in enumerate(rows):
            try:
                self.do(number, op, block, size, stream, pool)
            except torch.OutOfMemoryError:
                self.failed = number
                return number
            if op in {ALLOC, FAILED}:
                self.note_peak(number)
        return len(self.columns["op"])

    def do(self, number: int, op: int, block: int, size: int, stream: int, pool: int) -> None:
        """One operation. A held block is freed when its completion was recorded: until then it cannot be used again."""
        if op == ALLOC:
            self.address[block] = self.allocate(size, stream, pool)
        elif op in {FREE, COMPLETE}:
            torch.cuda.caching_allocator_delete(self.address[block])
        elif op == EMPTY_CACHE:
            torch.cuda.empty_cache()
        elif op == FAILED:
            last = number + 1 == len(self.columns["op"])
            try:
                address = self.allocate(size, stream, pool)
            except torch.OutOfMemoryError:
                self.failed = number if last else None
                return
            self.avoided += 1
            if not last:
                torch.cuda.caching_allocator_delete(address)

    def allocate(self, size: int, stream: int, pool: int) -> int:
        """Ask torch's allocator, inside the request's pool."""
        if pool and pool not in self.pools:
            self.pools[pool] = torch.cuda.MemPool()
        with torch.cuda.use_mem_pool(self.pools[pool]) if pool else nullcontext():
            return int(torch.cuda.caching_allocator_alloc(size, 0, self.handle(stream)))

    def handle(self, stream: int) -> int:
        """A stream of this process for each recorded one."""
        if stream not in self.streams:
            made = torch.cuda.Stream()
            self.keep.append(made)
            self.streams[stream] = made.cuda_stream
        return self.streams[stream]

    def note_peak(self, operation: int) -> None:
        """Keep the levels when reserved memory rises above all before."""
        stats = torch.cuda.memory_stats()
        reserved = stats.get("reserved_bytes.all.peak", 0)
        if self.peak and reserved <= self.peak["reserved"]:
            return
        self.peak = {
            "operation": operation,
            "reserved": reserved,
            "active": stats.get("active_bytes.all.current", 0),
            "allocated": stats.get("allocated_bytes.all.current", 0),
            "requested": stats.get("requested_bytes.all.current", 0),
            "returnable": returnable(self.job["pages"]),
        }


def returnable(pages: dict[str, int]) -> int:
    """What ``empty_cache`` would return now, private pools apart."""
    total = 0
    for segment in torch.cuda.memory_snapshot():
        if tuple(segment["segment_pool_id"]) != (0, 0):
            continue
        if not segment["is_expandable"]:
            total += 0 if segment["active_size"] else segment["total_size"]
            continue
        page, start = pages[segment["segment_type"]], segment["address"]
        for block in segment["blocks"]:
            if block["state"] == "inactive":
                low = -(-(block["address"] - start) // page)
                high = (block["address"] + block["size"] - start) // page
                total += max(high - low, 0) * page
    return total


def main(folder: Path) -> None:
    """Run the job in ``folder``."""
    prepare_torch(torch)
    job = json.loads((folder / "job.json").read_text(encoding="utf-8"))
    torch.cuda.init()
    if job["fraction"] is not None:
        torch.cuda.set_per_process_memory_fraction(job["fraction"])
    requests = Requests(np.load(folder / "requests.npz"), job)
    operations = requests.run()
    outcome = {
        "stats": dict(torch.cuda.memory_stats()),
        "peak": requests.peak,
        "operations": operations,
        "failed": requests.failed,
        "avoided": requests.avoided,
        "free": torch.cuda.mem_get_info()[0],
    }
    (folder / "outcome.json").write_text(json.dumps(outcome), encoding="utf-8")


if __name__ == "__main__":
    main(Path(sys.argv[1]))
