"""The library in front of cuBLAS: it calls the real one wherever that was loaded, and without a compiler there is none."""

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from vramdoc.record.preload import build_preload, with_preload

pytestmark = [
    pytest.mark.skipif(sys.platform != "linux", reason="LD_PRELOAD"),
    pytest.mark.skipif(shutil.which("cc") is None, reason="no C compiler"),
]

CUBLAS = """
int cublasCreate_v2(void **handle) { *handle = (void *)7; return 0; }
int cudaMemGetInfo(unsigned long *free, unsigned long *total) { *free = 1000; *total = 2000; return 0; }
"""

PROGRAM = """
import ctypes, sys
cublas = ctypes.CDLL(sys.argv[1], mode={mode})
handle = ctypes.c_void_p()
process = ctypes.CDLL(None)
print(process.cublasCreate_v2(ctypes.byref(handle)), handle.value, process.vramdoc_cublas_count())
"""


@pytest.fixture(scope="module")
def cublas(tmp_path_factory) -> Path:
    folder = tmp_path_factory.mktemp("cublas")
    (folder / "cublas.c").write_text(CUBLAS)
    library = folder / "libcublas.so.99"
    subprocess.run(["cc", "-shared", "-fPIC", folder / "cublas.c", "-o", library], check=True)
    return library


@pytest.mark.parametrize("mode", ["ctypes.RTLD_GLOBAL", "ctypes.RTLD_LOCAL"])
def test_the_real_function_is_called_however_cublas_was_loaded(cublas, tmp_path, mode) -> None:
    environment = with_preload(os.environ, cache=tmp_path)
    done = subprocess.run(
        [sys.executable, "-c", PROGRAM.format(mode=mode), cublas],
        env=environment,
        capture_output=True,
        text=True,
        check=True,
    )
    assert done.stdout == "0 7 1\n"


def test_it_goes_before_what_is_preloaded_already(tmp_path: Path) -> None:
    library = build_preload(tmp_path)
    assert with_preload({"LD_PRELOAD": "libother.so", **path()}, cache=tmp_path)["LD_PRELOAD"] == (
        f"{library}:libother.so"
    )


@pytest.mark.parametrize(
    "environment", [{"PATH": ""}, {"CC": "no-such-compiler", "PATH": "/usr/bin"}, {"CC": "false"}]
)
def test_without_a_compiler_the_program_runs_unwatched(
    tmp_path: Path, environment: dict[str, str]
) -> None:
    environment = {**path(), **environment}
    assert with_preload(environment, cache=tmp_path) == environment


def test_a_folder_that_ld_preload_cannot_spell_is_not_used(tmp_path: Path) -> None:
    assert build_preload(tmp_path / "a b") is None


def path() -> dict[str, str]:
    return {"PATH": os.environ["PATH"]}
