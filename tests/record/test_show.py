"""From a command to the line of code: recorded and diagnosed as a person would, on a virtual GPU."""

import json
import sys
import textwrap
from pathlib import Path

import pytest

pytestmark = pytest.mark.virtual_gpu

TRAINING = """
import torch
model = torch.nn.Sequential(*[torch.nn.Linear(1024, 1024) for _ in range(4)]).cuda()
optimizer = torch.optim.AdamW(model.parameters())
losses = []
for step in range(100):
    batch = torch.randn(4096, 1024, device="cuda")
    loss = model(batch).square().mean()
    loss.backward()
    optimizer.step()
    optimizer.zero_grad()
    losses.append(model(batch))  # keeps every step's graph
"""

TWO_RANKS = """
import os, torch, torch.distributed as dist
dist.init_process_group("gloo")
torch.cuda.set_device(int(os.environ["LOCAL_RANK"]))
kept = []
for step in range(1000):
    activations = torch.empty(64 << 20, dtype=torch.uint8, device="cuda")
    if dist.get_rank() == 1:
        kept.append(torch.empty(256 << 20, dtype=torch.uint8, device="cuda"))
    dist.barrier()
"""

KILLED = """
import os, signal, time, torch
weights = torch.empty(3 << 30, dtype=torch.uint8, device="cuda")
time.sleep(1)
os.kill(os.getpid(), signal.SIGKILL)
"""

PROMPT_CACHE = """
import torch
from safetensors.torch import load_file, save_file
save_file({"keys": torch.zeros(1, 8, 16, 64)}, "prompt.safetensors")
keys = load_file("prompt.safetensors")["keys"]
query = torch.ones(1, 8, 1, 64, device="cuda")
keys.resize_(1, 8, 4096, 64)
"""

TORCHRUN = ["-m", "torch.distributed.run", "--standalone", "--nproc-per-node", "2"]


@pytest.mark.parametrize(
    "case",
    [
        (TRAINING, [], [], 1, "leak", "train.py:12"),
        (TWO_RANKS, TORCHRUN, [], 1, "leak", "train.py:9"),
        (KILLED, [], ["--every", "0.3"], 137, "undecided", "train.py:3"),
        (PROMPT_CACHE, [], [], 1, "resize-not-resizable", "train.py:7"),
    ],
    ids=["out-of-memory-at-step-40", "one-rank-leaks", "killed", "cache-past-a-mapped-file"],
)
def test_recorded_and_diagnosed_with_the_right_line(vramdoc, tmp_path: Path, case) -> None:
    source, launcher, options, code, primary, place = case
    (tmp_path / "train.py").write_text(textwrap.dedent(source))
    argv = [sys.executable, *launcher, "train.py"]
    recorded = vramdoc("record", "--gpu", "8GiB", *options, "--", *argv)
    assert recorded.returncode == code, recorded.stderr
    (folder,) = (entry for entry in (tmp_path / ".vramdoc").iterdir() if entry.is_dir())
    diagnosed = vramdoc("diagnose", folder, "--json")
    report = json.loads(diagnosed.stdout)
    assert report["primary"] == primary
    assert place in diagnosed.stdout


def test_a_script_that_never_touches_torch_leaves_no_folder(vramdoc, tmp_path: Path) -> None:
    done = vramdoc("record", "--", sys.executable, "-c", "print('plain')")
    assert (done.returncode, done.stdout, done.stderr) == (0, "plain\n", "")
    assert list(tmp_path.iterdir()) == []
