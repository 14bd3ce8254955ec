"""What is measured from a snapshot equals what torch's own allocator counted, at a real out-of-memory error."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from vramdoc.crashlog import parse
from vramdoc.errors import VramdocError
from vramdoc.evidence.anatomy import anatomy_from_crash
from vramdoc.evidence.build import case_from_snapshot
from vramdoc.evidence.timeline import LEVELS
from vramdoc.virtual_gpu.catalogue import find_gpu
from vramdoc.virtual_gpu.environment import virtual_environment
from vramdoc.virtual_gpu.torch_build import find_torch

pytestmark = pytest.mark.virtual_gpu
PROGRAM = Path(__file__).parent / "torch_programs" / "leaky_training.py"


@pytest.fixture(scope="module")
def failure(tmp_path_factory):
    """(what torch said, the case of the snapshot taken at the failure)."""
    folder = tmp_path_factory.mktemp("leaky")
    try:
        environment = virtual_environment(find_gpu("2GiB"), find_torch())
    except VramdocError as error:
        pytest.skip(f"no torch that the virtual GPU can serve: {error}")
    done = subprocess.run(
        [sys.executable, PROGRAM, folder],
        env={**os.environ, **environment},
        capture_output=True,
        text=True,
        timeout=300,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout.splitlines()[-1]), case_from_snapshot(folder / "oom.pickle")


def test_levels_at_the_failure_are_torchs_own(failure):
    said, case = failure
    for level in LEVELS:
        assert getattr(case.usage.end, level) == said["stats"][f"{level}_bytes.all.current"], level
    assert case.usage.peak.requested == said["stats"]["requested_bytes.all.peak"]
    assert case.usage.peak.reserved == said["stats"]["reserved_bytes.all.peak"]
    assert case.usage.complete


def test_the_anatomy_agrees_with_the_message_as_far_as_it_is_printed(failure):
    said, case = failure
    message = anatomy_from_crash(parse(said["message"]))
    for name in ("requested", "free", "allocated", "unallocated"):
        printed, exact = getattr(message, name), getattr(case.oom, name)
        # Two decimals: half a unit of the last digit, in GiB at most.
        assert abs(printed.value - exact.value) <= (1 << 30) // 200, name


def test_the_line_that_leaks_is_named_with_its_rhythm(failure):
    said, case = failure
    assert case.growth.steps_are_marked
    assert "Optimizer" in case.growth.period_source
    leaking = {site.site.function for site in case.growth.sites}
    assert leaking == {"step"}
    (line,) = {site.site.line for site in case.growth.sites}
    assert "model(" in PROGRAM.read_text().splitlines()[line - 1]
    assert case.growth.sites[0].per_step_bytes >= 2048 * 1024 * 4
    assert case.growth.steps >= said["steps"] - 4
