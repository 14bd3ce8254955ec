"""The prepared script for a machine with a real GPU: at most 8 minutes, results into docs/gpu-validation.md.

    python tests/gpu/validate.py              measure on cuda:0
    python tests/gpu/validate.py --gpu 24GiB  the same steps on a virtual device, to try the script itself (writes no page)

What it holds against each other: the real device, PyTorch's allocator on a virtual device of the same size, and the
simulator (by replaying what was recorded). Sizes that the GPU catalogue assumes are measured. Both failures are made to
happen, and their fixes are tried, for real.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

from vramdoc.evidence.build import case_from_recording
from vramdoc.examine.replays import prepared
from vramdoc.examine.run import outcome_of
from vramdoc.record.command import record_command
from vramdoc.record.devices import real_gpus
from vramdoc.record.launch import run_workload
from vramdoc.replay.replayable import fidelity
from vramdoc.units import format_bytes
from vramdoc.workload.spec import WorkloadSpec

REPOSITORY = Path(__file__).resolve().parents[2]
PAGE = REPOSITORY / "docs" / "gpu-validation.md"
LIMIT_S = 8 * 60
"""What a borrowed machine leaves; steps that would start later are named as not run."""

SIZES = """
import json, torch
def free(): torch.cuda.synchronize(); return torch.cuda.mem_get_info()[0]
torch.cuda.init()
total, first = torch.cuda.mem_get_info()[1], free()
torch.cuda.current_blas_handle(); handle = first - free() - torch.cuda.memory_reserved()
a = torch.ones(64, 64, device="cuda"); reserved = torch.cuda.memory_reserved(); before = free()
(a @ a).sum().item()
print(json.dumps({
    "name": torch.cuda.get_device_name(), "capability": torch.cuda.get_device_capability(), "total": total,
    "outside_after_init": total - first, "cublas_handle": handle,
    "first_product": before - free() - (torch.cuda.memory_reserved() - reserved),
    "cublas_workspace": torch.cuda.memory_allocated() - a.numel() * 4,
    "torch": torch.__version__, "cuda": torch.version.cuda,
}))
"""

RANDOM_PROGRAM = """
import random, torch
random.seed({seed})
streams = [torch.cuda.Stream() for _ in range(3)]
live = []
for step in range(3000):
    if live and random.random() < 0.48:
        live.pop(random.randrange(len(live)))
    elif random.random() < 0.002:
        torch.cuda.empty_cache()
    else:
        size = int(2 ** random.uniform(3, 26))
        with torch.cuda.stream(random.choice([torch.cuda.default_stream(), *streams])):
            live.append(torch.empty(size, dtype=torch.uint8, device="cuda"))
"""


class Session:
    """One run of all steps: what they found, and what was left out for want of time."""

    def __init__(self, gpu: str, folder: Path) -> None:
        self.gpu = gpu
        self.folder = folder
        self.started = time.monotonic()
        self.lines: list[str] = []

    def step(self, title: str, work: Callable[[], list[str]]) -> None:
        if time.monotonic() - self.started > LIMIT_S:
            self.lines += ["", f"## {title}", "", "Not run: the time was used up."]
            return
        print(f"{title} ...", flush=True)
        try:
            found = work()
        except Exception as error:  # noqa: BLE001 - one failed step must not lose the others' results
            found = [f"Failed: {type(error).__name__}: {error}"]
        self.lines += ["", f"## {title}", "", *found]

    def sizes(self) -> list[str]:
        path = self.folder / "sizes.py"
        path.write_text(SIZES)
        recording = record_command(
            (sys.executable, str(path)),
            gpu=self.gpu,
            root=self.folder / "sizes",
            capture_output=True,
        ).recording
        assert recording is not None
        output = recording.output_path.read_text().strip().splitlines()[-1]
        found: dict[str, Any] = json.loads(output)
        keys = ("total", "outside_after_init", "cublas_handle", "first_product", "cublas_workspace")
        head = f"{found['name']}, compute capability {found['capability']}, torch {found['torch']}, CUDA {found['cuda']}."
        return [head, "", "| figure | bytes | |", "|---|--:|--:|",
                *(f"| {key} | {found[key]:,} | {format_bytes(found[key])} |" for key in keys)]  # fmt: skip

    def random_programs(self) -> list[str]:
        rows = []
        for seed in range(4):
            path = self.folder / f"random_{seed}.py"
            path.write_text(RANDOM_PROGRAM.format(seed=seed))
            for conf in ("", "expandable_segments:True", "roundup_power2_divisions:4"):
                recording = record_command(
                    (sys.executable, str(path)), gpu=self.gpu, alloc_conf=conf,
                    root=self.folder / "random", capture_output=True,
                ).recording  # fmt: skip
                rows.append(f"| {seed} | `{conf or 'default'}` | {self.replayed(recording)} |")
        return [
            "| seed | config | recorded events replayed by the simulator |",
            "|---|---|---|",
            *rows,
        ]

    def replayed(self, recording: Any) -> str:
        if recording is None:
            return "no recording"
        ready = prepared(case_from_recording(recording))
        return "no trace" if ready is None else fidelity(ready).sentence()

    def model_runs(self) -> list[str]:
        model = self.folder / "tiny.safetensors"
        make = [sys.executable, REPOSITORY / "examples" / "make_model.py", "--shape", "tiny", model]
        subprocess.run(make, check=True, capture_output=True)
        rows = []
        for name in ("chat", "train"):
            spec = WorkloadSpec(target=str(model), name=name)
            here = run_workload(spec, gpu=self.gpu, root=self.folder / "model")
            assert here.manifest.device is not None
            size = f"{here.manifest.device.total_bytes >> 30}GiB"
            virtual = run_workload(replace(spec), gpu=size, root=self.folder / "virtual")
            real, other = outcome_of(here.manifest), outcome_of(virtual.manifest)
            rows.append(
                f"| {name} | {real.reserved_peak:,} | {other.reserved_peak:,} | {real.active_peak:,} | "
                f"{other.active_peak:,} | {self.replayed(here)} |"
            )
        head = "| workload | reserved, device | reserved, virtual | active, device | active, virtual | simulator |"
        return [head, "|---|--:|--:|--:|--:|---|", *rows]

    def failures(self) -> list[str]:
        rows = []
        for script in ("cublas_handle.py", "resize_frozen_file.py"):
            command = [sys.executable, "-m", "vramdoc", "diagnose", "--json", "--gpu", self.gpu,
                       "--recordings", self.folder / "failures", "--", sys.executable,
                       REPOSITORY / "examples" / script]  # fmt: skip
            done = subprocess.run(command, capture_output=True, text=True, timeout=240, check=False)
            report = json.loads(done.stdout)
            tried = [f"{p['id']} {p['verification']['status']}" for p in report["prescriptions"]]
            rows.append(f"| {script} | {report['primary']} | {', '.join(tried)} |")
        return ["| example | verdict | prescriptions |", "|---|---|---|", *rows]

    def overhead(self) -> list[str]:
        command = [
            sys.executable,
            REPOSITORY / "benchmarks" / "recording.py",
            "--gpu",
            self.gpu,
            "--rounds",
            "3",
        ]
        done = subprocess.run(command, capture_output=True, text=True, timeout=240, check=True)
        return ["```", *done.stdout.strip().splitlines(), "```"]


def page(session: Session) -> str:
    return (
        "\n".join(
            ["# On a real GPU", "", "Written by `python tests/gpu/validate.py`.", *session.lines]
        )
        + "\n"
    )


def run(gpu: str) -> Session:
    """All steps on one device."""
    with tempfile.TemporaryDirectory() as folder:
        session = Session(gpu, Path(folder))
        session.step("Sizes outside PyTorch's allocator", session.sizes)
        session.step("Both failures, and their fixes", session.failures)
        session.step("Model runs: device, virtual device, simulator", session.model_runs)
        session.step("Random programs: device against simulator", session.random_programs)
        session.step("Recording overhead", session.overhead)
        return session


NO_GPU = """# On a real GPU

**No GPU could be used so far.** Nothing on this page was measured on a device: every figure of the project comes from PyTorch's
allocator on a virtual GPU, from the simulator, or from public sources that the GPU catalogue names. Sizes of the CUDA context
and of cuBLAS handles are therefore assumptions of the catalogue.

`python tests/gpu/validate.py` (also `make gpu`) needs a machine with an NVIDIA GPU and at most 8 minutes; it rewrites this page.
"""

if __name__ == "__main__":
    parser = argparse.ArgumentParser()
    parser.add_argument("--gpu", default="cuda:0")
    gpu = parser.parse_args().gpu
    gpus, note = real_gpus()
    if gpu.startswith("cuda:") and not gpus:
        print(f"no real GPU here: {note}")
        PAGE.write_text(NO_GPU, encoding="utf-8")
    else:
        text = page(run(gpu))
        print(text)
        if gpu.startswith("cuda:"):
            PAGE.write_text(text, encoding="utf-8")
