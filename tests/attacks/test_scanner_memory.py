"""The scanner under the address and undefined-behaviour sanitizers, fed with mutated snapshots: no wrong access, no leak."""

import os
import pickle
import random
import shutil
import subprocess
from pathlib import Path

import pytest

from tests.attacks.snapshots import BOMBS_OF_LISTS, GOOD
from tests.evidence.programs import played
from tests.snapshot.plain import FRAMES, block, event, segment, snapshot
from vramdoc.snapshot.scanner.library import SOURCE

RUNS = int(os.environ.get("VRAMDOC_FUZZ_RUNS", "20000"))


@pytest.fixture(scope="module")
def fuzzer(tmp_path_factory):
    compiler = shutil.which("gcc") or shutil.which("clang")
    if compiler is None:
        pytest.skip("no C compiler here")
    built = tmp_path_factory.mktemp("fuzz") / "fuzz_scanner"
    flags = ["-std=c11", "-O1", "-g", "-fsanitize=address,undefined", "-fno-sanitize-recover=all"]
    source = Path(__file__).with_name("fuzz_scanner.c")
    done = subprocess.run(
        [compiler, *flags, f'-DSCANNER="{SOURCE}"', "-o", str(built), str(source)],
        capture_output=True, text=True, check=False,
    )  # fmt: skip
    if done.returncode:
        pytest.skip(f"the sanitizers are not here: {done.stderr.splitlines()[-1][:200]}")
    return built


@pytest.fixture(scope="module")
def seeds(tmp_path_factory):
    folder = tmp_path_factory.mktemp("seeds")
    allocator, _ = played(3)
    rich = snapshot(
        [segment(0, [block(0, 512, frames=FRAMES)], segment_pool_id=(0, 2**40))],
        [event("alloc", 0, 5, frames=FRAMES, pool_id=(0, 0)), event("oom", 0, 2**62)],
        odd={1: 2.5, "set": {1, 2}, "bytes": b"xx", "tuple": (1, 2, 3, 4), "deep": [[[[]]]]},
    )
    contents = [GOOD, *BOMBS_OF_LISTS, pickle.dumps(allocator.snapshot(), 4)]
    contents += [pickle.dumps(rich, protocol) for protocol in range(2, 6)]
    paths = [folder / str(number) for number in range(len(contents))]
    for path, content in zip(paths, contents, strict=True):
        path.write_bytes(content)
    return paths


@pytest.mark.parametrize("seed", [random.Random(0).randrange(1 << 32), 1])
def test_mutated_snapshots_touch_no_foreign_memory(fuzzer, seeds, seed):
    done = subprocess.run(
        [fuzzer, str(seed), str(RUNS // 2), *seeds], capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr[-4000:]
    assert " read" in done.stdout
