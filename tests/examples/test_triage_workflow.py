"""The example workflow's own step, run as a GitHub runner runs it: an answer for a traceback, none for what cannot decide."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest
import yaml

REPOSITORY = Path(__file__).resolve().parents[2]
WORKFLOW = REPOSITORY / "examples" / "triage-workflow.yml"
OOM = (
    "torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 8.00 GiB. GPU 0 has a total capacity of 23.52 GiB of which "
    "1.00 GiB is free. Of the allocated memory 22.00 GiB is allocated by PyTorch, and 100.00 MiB is reserved by PyTorch but unallocated."
)
HOSTILE = f"$(touch taken) `touch taken` ; touch taken\n::set-output name=status::1\n</details>@everyone\n{OOM}\n"


def step(name: str) -> dict[str, object]:
    """One step of the job, by its id."""
    steps = yaml.safe_load(WORKFLOW.read_text(encoding="utf-8"))["jobs"]["diagnose"]["steps"]
    return next(step for step in steps if step.get("id") == name)


@pytest.mark.skipif(os.name != "posix", reason="GitHub's Linux runners use bash")
@pytest.mark.parametrize(
    ("body", "status"),
    [(OOM, "1"), (HOSTILE, "1"), ("It runs out of memory.", "3"), ("Please add a feature.", "3")],
)
def test_the_step_answers_an_issue(body: str, status: str, tmp_path: Path) -> None:
    shim = tmp_path / "bin" / "vramdoc"
    shim.parent.mkdir()
    shim.write_text(f'#!/bin/sh\nexec "{sys.executable}" -m vramdoc "$@"\n')
    shim.chmod(0o755)
    output, work = tmp_path / "output", tmp_path / "work"
    work.mkdir()
    environment = {
        **os.environ,
        "PATH": f"{shim.parent}{os.pathsep}{os.environ['PATH']}",
        "PYTHONPATH": str(REPOSITORY),
        "BODY": body,
        "GITHUB_OUTPUT": str(output),
    }
    script = str(step("diagnose")["run"])
    # GitHub's own template for `shell: bash`
    subprocess.run(
        ["bash", "--noprofile", "--norc", "-eo", "pipefail", "-c", script],
        cwd=work,
        env=environment,
        check=True,
    )
    assert output.read_text() == f"status={status}\n"
    assert {path.name for path in work.iterdir()} == {"answer.md"}
    answer = (work / "answer.md").read_text(encoding="utf-8")
    assert answer.startswith("## True capacity" if status == "1" else "## Undecided")
    assert not any(line.startswith("::") for line in answer.splitlines())


def test_an_answer_is_posted_only_for_findings() -> None:
    steps = yaml.safe_load(WORKFLOW.read_text(encoding="utf-8"))["jobs"]["diagnose"]["steps"]
    last = steps[-1]
    assert last["if"] == "steps.diagnose.outputs.status == '1'"
    assert "${{ github.event.issue.body }}" not in "".join(str(s.get("run", "")) for s in steps)
