"""The variables that put a child on a virtual GPU."""

import sys
from pathlib import Path

import pytest

from tests.virtual_gpu.child import torch_build
from vramdoc.errors import UnreadableInput, UsageError
from vramdoc.virtual_gpu.catalogue import find_gpu
from vramdoc.virtual_gpu.driver_log import DriverCall, read_driver_log
from vramdoc.virtual_gpu.environment import virtual_environment

pytestmark = [
    pytest.mark.virtual_gpu,
    pytest.mark.skipif(sys.platform != "linux", reason="the virtual GPU is for Linux on x86-64"),
]


def test_search_paths_are_extended_and_the_choice_of_real_devices_is_overridden() -> None:
    inherited = {
        "LD_PRELOAD": "libjemalloc.so",
        "LD_LIBRARY_PATH": "/opt/lib",
        "CUDA_VISIBLE_DEVICES": "3",
    }
    made = virtual_environment(find_gpu("t4"), torch_build(), devices=2, inherited=inherited)
    assert made["LD_PRELOAD"].endswith("libvramdoc_gpu.so:libjemalloc.so")
    assert made["LD_LIBRARY_PATH"].endswith(":/opt/lib")
    assert made["CUDA_VISIBLE_DEVICES"] == "0,1"


@pytest.mark.parametrize(
    ("gpu", "newest"), [("v100", 75), ("rtx4090", 86), ("h100", 90), ("b200", 100)]
)
def test_the_kernel_image_is_one_that_the_wheel_holds(gpu: str, newest: int) -> None:
    image = int(virtual_environment(find_gpu(gpu), torch_build())["VRAMDOC_VGPU_IMAGE"])
    assert image <= newest
    assert image in (60, 70, 75, 80, 86, 90, 100, 120)


@pytest.mark.parametrize(("devices", "foreign"), [(0, 0), (65, 0), (1, -1), (1, 16 << 30)])
def test_impossible_devices_are_refused(devices: int, foreign: int) -> None:
    with pytest.raises(UsageError):
        virtual_environment(find_gpu("8GiB"), torch_build(), devices=devices, foreign_bytes=foreign)


def test_driver_log_is_read_line_by_line(tmp_path: Path) -> None:
    log = tmp_path / "log"
    log.write_text(
        "7 cudaMalloc 0 2097152 0x7f0000000000 0\n7 cuPointerGetAttribute (x) 0 0 0x0 801\n"
    )
    assert read_driver_log(log) == [
        DriverCall(
            pid=7, call="cudaMalloc", device=0, bytes=2097152, address=0x7F0000000000, result=0
        ),
        DriverCall(
            pid=7, call="cuPointerGetAttribute (x)", device=0, bytes=0, address=0, result=801
        ),
    ]


@pytest.mark.parametrize("text", ["hello\n", "7 cudaMalloc zero 1 0x0 0\n"])
def test_other_files_are_no_driver_logs(text: str, tmp_path: Path) -> None:
    (tmp_path / "log").write_text(text)
    with pytest.raises(UnreadableInput, match="not a driver log"):
        read_driver_log(tmp_path / "log")
    with pytest.raises(UnreadableInput, match="cannot read"):
        read_driver_log(tmp_path / "absent")
