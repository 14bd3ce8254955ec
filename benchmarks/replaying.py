"""Replaying one large snapshot in the simulator, beside bare ``pickle.load`` of it; and beside torch's own allocator on a virtual GPU.

CPU seconds inside the process, so that start-up and reading are not in them.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from section import Options, Section, table

from vramdoc.errors import VramdocError
from vramdoc.record.device_choice import choose_device
from vramdoc.virtual_gpu.torch_build import find_torch

_BARE = """
import gc, json, pickle, sys, time
gc.disable()
started = time.process_time()
with open(sys.argv[1], "rb") as file:
    data = pickle.load(file)
print(json.dumps({"pickle": time.process_time() - started}))
"""
_OURS = """
import json, os, sys, time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from vramdoc.replay.compare import compare, replay
from vramdoc.replay.configs import default_configs
from vramdoc.replay.replayable import fidelity, replayable
from vramdoc.snapshot.reader import read_snapshot

snapshot = read_snapshot(Path(sys.argv[1]))
taken, last = {}, time.process_time()

def lap(name):
    global last
    taken[name] = time.process_time() - last
    last = time.process_time()

recording = replayable(snapshot)
lap("prepare")
how = fidelity(recording)
lap("")  # made by a model of the allocator, so the recorded events differ early: no measure of following a real trace
replay(recording, "", fidelity=how)
lap("one config")
started = time.perf_counter()
configs = default_configs(recording.release)
with ThreadPoolExecutor(os.cpu_count()) as pool:
    compare(recording, configs, fidelity=how, executor=pool)
lap("all")
print(json.dumps({**taken, "wall": time.perf_counter() - started, "configs": len(configs)}))
"""
_SIMULATED = """
import json, sys, time
from pathlib import Path
import numpy as np
from vramdoc.allocator.config import AllocatorConfig
from vramdoc.replay.native import simulator
from vramdoc.replay.replayable import replayable
from vramdoc.snapshot.reader import read_snapshot

path, columns, release = sys.argv[1:]
recording = replayable(read_snapshot(Path(path)), release=release)
requests, engine = recording.requests, simulator()
job = recording.job(AllocatorConfig.parse("", release=recording.release))
np.savez(columns, op=requests.op, block=requests.block, size=requests.size, blocks=requests.blocks)
started = time.process_time()
outcome = engine.run(job)
print(json.dumps({"seconds": time.process_time() - started, "stats": dict(outcome.stats)}))
"""
_REAL = """
import json, sys, time
import numpy as np
import torch
from torch.cuda import caching_allocator_alloc, caching_allocator_delete

torch.cuda.init()
columns = np.load(sys.argv[1])
rows = list(zip(columns["op"].tolist(), columns["block"].tolist(), columns["size"].tolist()))
address = [0] * int(columns["blocks"])
started = time.process_time()
for op, block, size in rows:
    if op == 0:
        address[block] = caching_allocator_alloc(size, 0, 0)
    else:
        caching_allocator_delete(address[block])
print(json.dumps({"seconds": time.process_time() - started, "stats": torch.cuda.memory_stats(), "operations": len(rows)}))
"""
_COMPARED = (
    "reserved_bytes.all.peak",
    "active_bytes.all.peak",
    "requested_bytes.all.peak",
    "num_device_alloc",
    "num_device_free",
)


def measure(options: Options) -> Section:
    snapshot = str(options.snapshot(options.largest))
    bare = _best(_BARE, snapshot)
    ours = _best(_OURS, snapshot)
    pickle, one = bare["pickle"], ours["one config"]
    rows = [
        ["pickle.load, collector off", f"{pickle:.3f}", "1.00"],
        ["preparing the trace, once", f"{ours['prepare']:.3f}", f"{ours['prepare'] / pickle:.2f}"],
        ["replaying under one config", f"{one:.3f}", f"{one / pickle:.2f}"],
        [f"replaying under {ours['configs']} configs", f"{ours['all']:.3f}", f"{ours['all'] / pickle:.2f}"],
    ]  # fmt: skip
    head = (
        f"{options.largest:,} events; CPU seconds inside the process, best of three. Goals: one config in the time of pickle.load; 8 "
        f"configs on 2 cores within 10 s (they took {ours['wall']:.2f} s wall)."
    )
    shown = table(["", "CPU s", "beside pickle.load"], rows)
    ratios = {
        f"replay {options.largest:,}, prepared: CPU beside pickle.load": one / pickle,
        f"replay {options.largest:,}, with preparing: CPU beside pickle.load": (one + ours["prepare"]) / pickle,
    }  # fmt: skip
    text, more = _real_allocator(snapshot, options.folder)
    return Section(text="\n\n".join([head, shown, text]), ratios={**ratios, **more})


def _real_allocator(snapshot: str, folder: Path) -> tuple[str, dict[str, float]]:
    columns = str(folder / "requests.npz")
    try:
        release = find_torch().release
        simulated = _best(_SIMULATED, snapshot, columns, release)
        gpu = choose_device("rtx4090").environment(os.environ)
        real = _best(_REAL, columns, environment=gpu)
    except VramdocError as error:
        return f"PyTorch's own allocator was not measured: {error.message}.", {}
    equal = all(simulated["stats"][key] == real["stats"][key] for key in _COMPARED)
    ratio = simulated["seconds"] / real["seconds"]
    text = (
        f"Beside PyTorch's own allocator (torch {release}, driven from Python on the virtual GPU, {real['operations']:,} operations): "
        f"{real['seconds']:.2f} s CPU, the simulator {simulated['seconds']:.3f} s, {1 / ratio:.0f} times less. Their peaks and driver calls "
        f"are {'equal' if equal else 'DIFFERENT'}."
    )
    return text, {"simulator: CPU beside the real allocator": ratio}


def _best(
    program: str, *arguments: str, rounds: int = 3, environment: Mapping[str, str] | None = None
) -> dict[str, Any]:
    """The round with the least CPU in all."""
    found = []
    for _ in range(rounds):
        done = subprocess.run(
            [sys.executable, "-c", program, *arguments],
            capture_output=True, text=True, check=True, env=environment,
        )  # fmt: skip
        found.append(json.loads(done.stdout))
    return min(found, key=lambda taken: sum(v for v in taken.values() if isinstance(v, float)))
