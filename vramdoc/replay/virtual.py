"""PyTorch's own allocator on a virtual GPU as an engine: a child process, an empty allocator, the recorded requests.

It needs Linux, a CUDA build of torch and a recording that begins with an empty allocator, as nothing can put torch's allocator into
a given layout. Where the simulator and this one differ, the simulator is wrong.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np

from vramdoc.allocator.sizes import SMALL_BUFFER, allocation_size, round_size
from vramdoc.errors import ChildProblem, UsageError
from vramdoc.facts import Source
from vramdoc.replay.engines import AtPeak, Failure, Job, Outcome
from vramdoc.replay.requests import Op
from vramdoc.virtual_gpu.catalogue import GpuModel, find_gpu
from vramdoc.virtual_gpu.environment import virtual_environment
from vramdoc.virtual_gpu.torch_build import TorchBuild, find_torch

_UNBOUNDED = 1 << 40
"""Capacity where none was recorded: 1 TiB, the largest device that the virtual GPU plays."""
_PAGE = 2 << 20


class VirtualGpu:
    """Torch's allocator in a child process."""

    source = Source.VIRTUAL_GPU

    def __init__(
        self,
        build: TorchBuild | None = None,
        *,
        python: str = sys.executable,
        environment: Mapping[str, str] = os.environ,
    ) -> None:
        """Prepare; nothing is started yet.

        Args:
            build: the torch to use; the one that ``python`` imports by default.
            python: the interpreter of the child.
            environment: what the child inherits.

        Raises:
            DeviceUnavailable, MissingDependency: there is no torch that a virtual GPU can serve.
        """
        self._build = build or find_torch(None if python == sys.executable else python)
        self._python = python
        self._environment = environment

    @property
    def release(self) -> str:
        """The release whose allocator answers."""
        return self._build.release

    def run(self, job: Job) -> Outcome:
        """See ``Engine``.

        Raises:
            UsageError: the recording starts late, the job follows a trace, or it is for another release.
            ChildProblem: the child ended without an answer.
        """
        self._refuse(job)
        with tempfile.TemporaryDirectory(prefix="vramdoc-replay-") as name:
            folder = Path(name)
            self._write(job, folder)
            child = subprocess.run(
                [self._python, "-m", "vramdoc.record.inside.allocate", name],
                env=self._variables(job),
                capture_output=True,
                text=True,
                check=False,
            )
            answer = folder / "outcome.json"
            if child.returncode or not answer.is_file():
                last = (child.stderr.strip().splitlines() or ["no message"])[-1]
                raise ChildProblem(f"torch's allocator did not answer on the virtual GPU: {last}")
            return self._outcome(job, json.loads(answer.read_text(encoding="utf-8")))

    def _refuse(self, job: Job) -> None:
        if job.start.segments:
            raise UsageError(
                "torch's own allocator can only replay from its start, and this recording begins later",
                "replay it in the simulator, or record the program from its start",
            )
        if job.follow is not None:
            raise UsageError(
                "torch's own allocator cannot be held against a recorded trace event by event"
            )
        if job.config.release != self.release:
            raise UsageError(
                f"the recording is of torch {job.config.release}, and torch {self.release} is installed",
                "replay it in the simulator, or install that release",
            )

    def _write(self, job: Job, folder: Path) -> None:
        r = job.requests
        np.savez(
            folder / "requests.npz",
            op=r.op,
            block=r.block,
            size=r.size,
            stream=r.stream,
            pool=r.pool,
        )
        plain = {
            "blocks": r.blocks,
            "fraction": job.fraction,
            "pages": {"small": SMALL_BUFFER, "large": job.config.large_segment_size},
        }
        (folder / "job.json").write_text(json.dumps(plain), encoding="utf-8")

    def _variables(self, job: Job) -> dict[str, str]:
        gpu = _model(job)
        return {
            **self._environment,
            **virtual_environment(gpu, self._build, inherited=self._environment),
            "PYTORCH_CUDA_ALLOC_CONF": job.config.text,
        }

    def _outcome(self, job: Job, answer: dict[str, Any]) -> Outcome:
        notes: tuple[str, ...] = ()
        if (job.requests.op == Op.HOLD).any():
            notes = (
                "blocks that waited for a stream stay allocated until their completion was recorded",
            )
        return Outcome(
            stats=answer["stats"],
            peak=AtPeak(**answer["peak"]),
            operations=answer["operations"],
            failure=self._failure(job, answer),
            avoided=answer["avoided"],
            notes=notes,
        )

    @staticmethod
    def _failure(job: Job, answer: dict[str, Any]) -> Failure | None:
        operation = answer["failed"]
        if operation is None:
            return None
        requested = int(job.requests.size[operation])
        rounded = round_size(requested, job.config.roundup_power2_divisions)
        stats = answer["stats"]
        return Failure(
            operation=operation,
            event=int(job.requests.event[operation]),
            requested=requested,
            tried=allocation_size(rounded, job.config.large_segment_size),
            free=answer["free"],
            reserved=stats["reserved_bytes.all.current"],
            active=stats["active_bytes.all.current"],
            rejected=bool(stats.get("num_oom_rejections")),
        )


def _model(job: Job) -> GpuModel:
    """A device of the recorded size; what was in use there is taken by its context here."""
    gpu = find_gpu("24GiB")
    capacity = _UNBOUNDED if job.capacity is None else job.capacity
    return replace(gpu, total_bytes=capacity - capacity % _PAGE, context_bytes=job.in_use)
