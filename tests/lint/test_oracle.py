"""What the tables of lint say, against the real torch: which storages are frozen, which calls start the allocator."""

from __future__ import annotations

import ast
import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from vramdoc.errors import VramdocError
from vramdoc.lint.devices import STARTERS
from vramdoc.lint.source import Source
from vramdoc.lint.storage import Owner, storages
from vramdoc.virtual_gpu.catalogue import find_gpu
from vramdoc.virtual_gpu.environment import virtual_environment
from vramdoc.virtual_gpu.torch_build import find_torch

MADE = (
    "t = torch.zeros(8)",
    "t = torch.zeros(8)[2:4]",
    "t = torch.zeros(8).detach()",
    "t = torch.zeros(8).t()",
    "t = torch.tensor(np.zeros(8))",
    "t = torch.from_numpy(np.zeros(8))",
    "t = torch.as_tensor(np.zeros(8))",
    "t = torch.asarray(np.zeros(8))",
    "t = torch.from_numpy(np.zeros(8)).view(2, 4)",
    "t = torch.from_numpy(np.zeros(8)).contiguous()",
    "t = torch.from_numpy(np.zeros(8)).to('cpu')",
    "t = torch.from_numpy(np.zeros(8)).clone()",
    "t = torch.from_numpy(np.zeros(8)) * 2",
    "t = torch.from_numpy(np.zeros(8))[[0, 2]]",
    "t = torch.from_numpy(np.zeros(8))[1:3]",
    "t = torch.nn.Parameter(torch.from_numpy(np.zeros(8)))",
    "t = torch.frombuffer(bytearray(64), dtype=torch.float32)",
    "t = torch.from_dlpack(np.zeros(8))",
    "t = torch.utils.dlpack.from_dlpack(torch.utils.dlpack.to_dlpack(torch.zeros(8)))",
    "t = torch.load(checkpoint)['w']",
    "t = torch.load(checkpoint, mmap=True)['w']",
    "t = torch.load(checkpoint, map_location='cpu')['w'].detach()",
    "t = torch.load(checkpoint)['w'].clone()",
    "t = load_file(tensors)['w']",
    "t = load_file(tensors, device='cpu')['w'].reshape(-1)",
    "with safe_open(tensors, 'pt') as f:\n    t = f.get_tensor('w')",
    "with safe_open(tensors, 'pt') as f:\n    t = f.get_slice('w')[:2]",
    "t = torch.zeros(8)\nt.numpy()",
    "t = torch.zeros(8)\nnp.asarray(t)",
    "t = torch.zeros(8)\nt[:2].numpy()",
    "t = torch.zeros(8)\nt.clone().numpy()",
    "t = torch.zeros(8)\na = t.numpy()\nt = t.clone()",
    "m = torch.nn.Linear(2, 2)\nm.load_state_dict(torch.load(module), assign=True)\nt = m.weight.data",
    "t = torch.cat([torch.from_numpy(np.zeros(8))] * 2)",
    "t = torch.empty_like(torch.from_numpy(np.zeros(8)))",
)
IMPORTS = "import numpy as np\nimport torch\nfrom safetensors import safe_open\nfrom safetensors.torch import load_file\n"


@pytest.fixture(scope="module")
def torch() -> Any:
    return pytest.importorskip("torch")


@pytest.fixture(scope="module")
def files(torch: Any, tmp_path_factory: pytest.TempPathFactory) -> dict[str, str]:
    from safetensors.torch import save_file

    folder = tmp_path_factory.mktemp("made")
    names = {name: str(folder / name) for name in ("checkpoint", "tensors", "module")}
    torch.save({"w": torch.zeros(4, 4)}, names["checkpoint"])
    save_file({"w": torch.zeros(4, 4)}, names["tensors"])
    torch.save(torch.nn.Linear(2, 2).state_dict(), names["module"])
    return names


@pytest.mark.parametrize("made", MADE)
def test_a_storage_is_called_frozen_exactly_where_torch_refuses_to_grow_it(
    made: str, torch: Any, files: dict[str, str]
) -> None:
    scope: dict[str, Any] = dict(files)
    exec(IMPORTS + made, scope)
    tensor = scope["t"].detach()
    source = Source(ast.parse(f"{IMPORTS}{made}\nuse(t)\n"))
    (use,) = source.calls["use"]
    owners = {storage.owner for storage in storages(source, use.args[0])}
    frozen = not tensor.untyped_storage().resizable()
    assert (Owner.FOREIGN in owners) is frozen
    if frozen:
        with pytest.raises(RuntimeError, match="not resizable"):
            tensor.resize_(10_000)


CALLS = {
    "torch.cuda.init": "()",
    "torch.cuda.set_device": "(0)",
    "torch.cuda.get_device_name": "(0)",
    "torch.cuda.get_device_properties": "(0)",
    "torch.cuda.get_device_capability": "()",
    "torch.cuda.current_device": "()",
    "torch.cuda.mem_get_info": "()",
    "torch.cuda.set_per_process_memory_fraction": "(0.9)",
    "torch.cuda.memory.set_per_process_memory_fraction": "(0.9)",
    "torch.cuda.synchronize": "()",
    "torch.cuda.reset_peak_memory_stats": "()",
    "torch.cuda.is_bf16_supported": "()",
    "torch.cuda.memory_summary": "()",
    "torch.cuda.memory._record_memory_history": "()",
    "torch.cuda.current_blas_handle": "()",
    "torch.cuda.current_stream": "()",
    "torch.cuda.is_available": "()",
    "torch.cuda.device_count": "()",
    "torch.cuda.manual_seed_all": "(0)",
    "torch.cuda.empty_cache": "()",
    "torch.cuda.memory_allocated": "()",
    "torch.cuda.memory_stats": "()",
    "torch.cuda.Event": "()",
    "torch.device": "('cuda')",
    "torch.set_default_device": "('cuda')",
}
PROGRAM = """
import json, os, sys, warnings
warnings.simplefilter("ignore")
import torch
started = {}
for name, arguments in json.loads(sys.argv[1]).items():
    reading, writing = os.pipe()
    if os.fork() == 0:
        eval(name + arguments)
        os.environ["PYTORCH_CUDA_ALLOC_CONF"] = "max_split_size_mb:77"
        torch.empty(10, device="cuda")
        heard = "77" in torch._C._accelerator_getAllocatorSettings()
        os.write(writing, b"0" if heard else b"1")
        os._exit(0)
    os.close(writing)
    started[name] = os.read(reading, 1) == b"1"
    os.close(reading)
    os.wait()
print(json.dumps(started))
"""


@pytest.mark.virtual_gpu
@pytest.mark.skipif(sys.platform != "linux", reason="the virtual GPU is for Linux on x86-64")
def test_the_calls_said_to_start_the_allocator_do_and_the_others_do_not(tmp_path: Path) -> None:
    try:
        variables = virtual_environment(find_gpu("8GiB"), find_torch())
    except VramdocError as error:
        pytest.skip(str(error))
    done = subprocess.run(
        [sys.executable, "-c", PROGRAM, json.dumps(CALLS)],
        env={**os.environ, **variables},
        cwd=tmp_path,
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    started = json.loads(done.stdout.splitlines()[-1])
    assert {name for name, did in started.items() if did} == set(STARTERS)
