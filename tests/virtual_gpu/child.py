"""Run a program with real torch on a virtual GPU, in a child process, and keep what it says.

``VRAMDOC_TORCH_PYTHON`` names another interpreter whose torch is then tested; see ``tests/releases``.
"""

import json
import os
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from vramdoc.errors import VramdocError
from vramdoc.virtual_gpu.catalogue import find_gpu
from vramdoc.virtual_gpu.driver_log import DriverCall, read_driver_log
from vramdoc.virtual_gpu.environment import virtual_environment
from vramdoc.virtual_gpu.torch_build import TorchBuild, find_torch

PROGRAMS = Path(__file__).parent / "programs"
ROOT = Path(__file__).parents[2]
OTHER_PYTHON = os.environ.get("VRAMDOC_TORCH_PYTHON")
MIB = 1 << 20


@dataclass(frozen=True)
class Outcome:
    """What a program printed on stdout (one JSON object), on stderr, and did to the driver."""

    said: dict[str, Any]
    stderr: str
    calls: list[DriverCall]
    returncode: int


def torch_build() -> TorchBuild:
    try:
        return find_torch(OTHER_PYTHON)
    except VramdocError as error:
        pytest.skip(f"no torch that the virtual GPU can serve: {error}")


def run_program(
    name: str,
    folder: Path,
    *arguments: str,
    gpu: str = "8GiB",
    devices: int = 1,
    foreign_bytes: int = 0,
    conf: str = "",
    **variables: str,
) -> Outcome:
    log = folder / "driver.log"
    environment = {
        **os.environ,
        **virtual_environment(
            find_gpu(gpu), torch_build(), devices=devices, foreign_bytes=foreign_bytes, log=log
        ),
        "PYTHONPATH": str(ROOT),
        "PYTORCH_CUDA_ALLOC_CONF": conf,
        **variables,
    }
    done = subprocess.run(
        [OTHER_PYTHON or sys.executable, str(PROGRAMS / f"{name}.py"), *arguments],
        env=environment,
        capture_output=True,
        text=True,
        timeout=300,
        check=False,
    )
    lines = done.stdout.splitlines()
    assert lines, done.stderr
    return Outcome(json.loads(lines[-1]), done.stderr, read_driver_log(log), done.returncode)
