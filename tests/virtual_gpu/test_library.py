"""The driver library: under every name it is looked up by, complete, and one line when it cannot be had."""

import ctypes
import shutil
import subprocess
import sys
from concurrent.futures import ProcessPoolExecutor
from pathlib import Path

import pytest

from tests.virtual_gpu.child import torch_build
from vramdoc.errors import MissingDependency
from vramdoc.virtual_gpu.library import SOURCES, build_library
from vramdoc.virtual_gpu.symbols import reachable_entry_points

pytestmark = [
    pytest.mark.virtual_gpu,
    pytest.mark.skipif(sys.platform != "linux", reason="the virtual GPU is for Linux on x86-64"),
]


@pytest.fixture(scope="module")
def cache(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("cache")


def test_two_builders_at_once_end_with_one_library(cache: Path) -> None:
    build = torch_build()
    with ProcessPoolExecutor(2) as pool:
        futures = [pool.submit(build_library, build, cache=cache) for _ in range(2)]
        first, second = (future.result() for future in futures)
    assert first == second
    assert [path.name for path in (cache / "virtual-gpu").iterdir()] == [first.parent.name]
    assert sorted(path.name for path in first.parent.iterdir()) == [
        "libcuda.so",
        "libcuda.so.1",
        "libnvidia-ml.so.1",
        "libvramdoc_gpu.so",
    ]


def test_it_is_compiled_once_and_then_needs_no_compiler(cache: Path) -> None:
    library = build_library(torch_build(), cache=cache)
    stamp = library.stat().st_mtime_ns
    assert build_library(torch_build(), cache=cache, environment={"PATH": ""}) == library
    assert library.stat().st_mtime_ns == stamp


def test_without_a_compiler_one_line_says_so(tmp_path: Path) -> None:
    with pytest.raises(MissingDependency) as caught:
        build_library(torch_build(), cache=tmp_path, environment={"PATH": str(tmp_path)})
    assert "no C compiler" in caught.value.message
    assert "apt-get install gcc" in caught.value.hint
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize("compiler", ["gcc", "clang"])
@pytest.mark.parametrize("version", [12040, 13000])
def test_the_sources_compile_without_a_warning(compiler: str, version: int, tmp_path: Path) -> None:
    if shutil.which(compiler) is None:
        pytest.skip(f"{compiler} is not installed")
    command = [compiler, "-std=c11", "-O1", "-Wall", "-Wextra", "-Werror", "-fPIC", "-shared"]
    sources = sorted(SOURCES.glob("*.c"))
    done = subprocess.run(
        [*command, f"-DCUDART_VERSION={version}", *sources, "-o", tmp_path / "library.so"],
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr


def test_every_entry_point_that_torch_imports_is_defined(cache: Path) -> None:
    library = ctypes.CDLL(str(build_library(torch_build(), cache=cache)))
    entry_points = reachable_entry_points(torch_build())
    assert {"cudaMalloc", "cublasCreate_v2", "cuMemCreate", "nvmlInit_v2"} <= set(entry_points)
    assert [name for name in entry_points if not hasattr(library, name)] == []


def test_pure_functions_stay_the_real_ones() -> None:
    entry_points = reachable_entry_points(torch_build())
    assert not {"cublasGetStatusString", "cublasGetVersion_v2", "cudaCreateChannelDesc"} & set(
        entry_points
    )
