"""The driver library alone: accounts, addresses, mappings, pools and host memory at their edges."""

import os
import sys
from pathlib import Path
from typing import Any

import pytest

from tests.virtual_gpu.child import MIB, run_program
from vramdoc.virtual_gpu.catalogue import find_gpu

pytestmark = [
    pytest.mark.virtual_gpu,
    pytest.mark.skipif(sys.platform != "linux", reason="the virtual GPU is for Linux on x86-64"),
]
INVALID_VALUE, OUT_OF_MEMORY, NO_DEVICE = 1, 2, 100
CONTEXT = find_gpu("8GiB").context_bytes


def ask(what: str, folder: Path, **more: Any) -> dict[str, Any]:
    outcome = run_program("driver_calls", folder, what, **more)
    assert outcome.returncode == 0, outcome.stderr
    assert outcome.stderr == ""
    return outcome.said


@pytest.mark.parametrize(
    ("visible", "count", "touched"),
    [
        ("0,1,2", 3, 0),
        ("2", 1, 2),
        ("2,0", 2, 2),
        ("1,7,0", 1, 1),
        ("GPU-7672616d-646f-6320-7669-727475616c02", 1, 2),
        ("", 0, None),
        ("none", 0, None),
    ],
)
def test_cuda_visible_devices(
    visible: str, count: int, touched: int | None, tmp_path: Path
) -> None:
    said = ask("visible", tmp_path, devices=3, CUDA_VISIBLE_DEVICES=visible)
    assert said["count"] == count
    assert said["count_code"] == (0 if count else NO_DEVICE)
    expected = [CONTEXT + 10 * MIB if index == touched else 0 for index in range(3)]
    assert said["nvml_used"] == expected


def test_ranges_are_charged_in_pages_and_freed_once(tmp_path: Path) -> None:
    said = ask("ranges", tmp_path)
    assert said["charged"] == (2 + 2 + 4) * MIB
    assert said["gaps"] == [2 * MIB, 2 * MIB]
    assert said["free_inside"] == said["free_twice"] == INVALID_VALUE
    assert said["free"] == [0, 0, 0]
    assert said["after_free"] == 0
    assert said["again_higher"]
    assert said["malloc_nothing"] is None
    assert said["malloc_too_much"] == OUT_OF_MEMORY
    assert said["last_error"] == [OUT_OF_MEMORY, 0]


def test_mapped_memory_stays_until_it_is_released_and_unmapped(tmp_path: Path) -> None:
    said = ask("mapping", tmp_path)
    refused = ("odd_size", "map_over", "map_outside", "free_mapped", "release_twice")
    assert [said[name] for name in refused] == [INVALID_VALUE] * len(refused)
    done = ("reserve", "create", "map", "release", "unmap", "free_addresses")
    assert [said[name] for name in done] == [0] * len(done)
    assert said["reserving_takes"] == 0
    assert said["held_while_mapped"] == 20 * MIB
    assert said["after_unmap"] == 0
    assert said["create_too_much"] == OUT_OF_MEMORY


def test_host_memory_is_copied_and_pinned_for_real(tmp_path: Path) -> None:
    said = ask("host", tmp_path)
    assert said["default_kind"] == [0, "x" * 8, 0, [0] * 8, 0, 21]
    assert said["register"] == [0, 712, INVALID_VALUE, 0, 713]
    unregistered, host, device = 0, 1, 2
    assert said["kinds"] == [unregistered, host, device, device, unregistered]
    assert said["free_host"] == [0, INVALID_VALUE]


def test_pool_grows_in_chunks_and_gives_back_at_a_synchronisation(tmp_path: Path) -> None:
    said = ask("pools", tmp_path)
    assert said["pool_code"] == 0
    assert said["pool_takes"] == said["pool_keeps"] == 32 * MIB
    assert said["pool_gives_back"] == 0
    assert said["pool_threshold_keeps"] == 64 * MIB
    assert said["pool_attributes"] == [64 * MIB, 64 * MIB, 0, 40 * MIB]
    assert said["pool_trimmed"] == 0
    assert said["pool_too_much"] == OUT_OF_MEMORY


def test_lookups_and_texts(tmp_path: Path) -> None:
    said = ask("lookups", tmp_path, foreign_bytes=MIB)
    assert said["known"] == [0, True, 0]
    assert said["unknown"] == [500, False, 1]
    assert said["error"] == ["cudaErrorMemoryAllocation", "out of memory"]
    insufficient_size = 7
    assert said["processes_need_room"] == [insufficient_size, 1]
    assert said["pid"] != os.getpid()
