"""One long-lived torch on the virtual GPU for all programs of this folder."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from vramdoc.errors import VramdocError
from vramdoc.virtual_gpu.catalogue import GpuModel, find_gpu
from vramdoc.virtual_gpu.environment import virtual_environment
from vramdoc.virtual_gpu.torch_build import TorchBuild, find_torch

SERVER = Path(__file__).with_name("allocator_server.py")
OTHER_PYTHON = os.environ.get("VRAMDOC_TORCH_PYTHON")


class RealAllocator:
    """Runs programs in real torch; each starts with a fresh allocator."""

    def __init__(self, gpu: GpuModel, build: TorchBuild) -> None:
        self.gpu = gpu
        self.release = build.release
        environment = {**os.environ, **virtual_environment(gpu, build)}
        self._child = subprocess.Popen(
            [OTHER_PYTHON or sys.executable, str(SERVER)],
            env=environment,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            text=True,
        )

    def run(self, config: str, program: list[list[Any]]) -> dict[str, Any]:
        assert self._child.stdin is not None
        assert self._child.stdout is not None
        self._child.stdin.write(json.dumps({"conf": config, "program": program}) + "\n")
        self._child.stdin.flush()
        reply = json.loads(self._child.stdout.readline())
        assert "broken" not in reply, reply["broken"]
        return reply

    def close(self) -> None:
        self._child.communicate()


@pytest.fixture(scope="session")
def real() -> Iterator[RealAllocator]:
    """Real torch on a virtual GPU of 1 GiB."""
    try:
        build = find_torch(OTHER_PYTHON)
    except VramdocError as error:
        pytest.skip(f"no torch that the virtual GPU can serve: {error}")
    allocator = RealAllocator(find_gpu("1GiB"), build)
    yield allocator
    allocator.close()
