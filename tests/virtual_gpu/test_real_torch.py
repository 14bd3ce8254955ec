"""Real torch on the virtual GPU: what it allocates is on the account, and what fails says so."""

import re
import sys
from pathlib import Path

import pytest

from tests.virtual_gpu.child import MIB, OTHER_PYTHON, Outcome, run_program, torch_build
from vramdoc.virtual_gpu.catalogue import find_gpu

pytestmark = [
    pytest.mark.virtual_gpu,
    pytest.mark.skipif(sys.platform != "linux", reason="the virtual GPU is for Linux on x86-64"),
]
BASE = 0x7F0000000000
GPU = find_gpu("8GiB")


def messages(outcome: Outcome) -> list[str]:
    return [line for line in outcome.stderr.splitlines() if line.startswith("vramdoc:")]


@pytest.fixture(scope="module")
def memory(tmp_path_factory: pytest.TempPathFactory) -> Outcome:
    return run_program("memory", tmp_path_factory.mktemp("memory"), foreign_bytes=1 << 30)


@pytest.fixture(scope="module")
def graphs(tmp_path_factory: pytest.TempPathFactory) -> Outcome:
    return run_program("graphs", tmp_path_factory.mktemp("graphs"))


@pytest.fixture(scope="module")
def devices(tmp_path_factory: pytest.TempPathFactory) -> Outcome:
    return run_program("devices", tmp_path_factory.mktemp("devices"), devices=2, foreign_bytes=MIB)


def test_device_is_the_catalogue_entry(memory: Outcome) -> None:
    said = memory.said
    assert said["available"]
    assert (said["name"], said["total"]) == (GPU.name, GPU.total_bytes)
    assert said["capability"] == [8, 9]
    assert said["multiprocessors"] == GPU.multiprocessors


def test_context_and_segments_are_charged_in_pages_of_2_mib(memory: Outcome) -> None:
    said, foreign = memory.said, 1 << 30
    assert said["context"] == foreign + GPU.context_bytes
    assert said["after_small"] - said["context"] == 2 * MIB
    assert said["after_big"] - said["after_small"] == 30 * MIB
    assert said["reserved"] == 32 * MIB
    assert said["after_empty_cache"] == said["after_small"]


def test_addresses_rise_from_one_base(memory: Outcome) -> None:
    assert memory.said["addresses"] == [BASE, BASE + 2 * MIB]
    taken = [call for call in memory.calls if call.call == "cudaMalloc" and not call.result]
    addresses = [call.address for call in taken]
    assert addresses == sorted(set(addresses))


def test_values_are_zeros_and_pinned_memory_is_apart(memory: Outcome) -> None:
    said = memory.said
    assert said["sum"] == said["round_trip"] == 0.0
    assert said["pinned"] == [False, True, True]
    assert said["after_pinned"] == said["after_empty_cache"]
    assert any(call.call == "cudaHostAlloc" and call.device == -1 for call in memory.calls)


def test_nvml_and_torch_see_the_same_device(memory: Outcome) -> None:
    nvml = memory.said["nvml"]
    assert nvml["count"] == nvml["torch_device_count"] == 1
    assert (nvml["name"], nvml["total"]) == (GPU.name, GPU.total_bytes)
    assert nvml["used"] == nvml["cuda_used"] == nvml["torch_used"]
    assert nvml["uuid"] == nvml["uuid_of_torch"]
    assert sum(nvml["processes"]) == nvml["used"]
    assert nvml["processes"][0] == 1 << 30


def test_out_of_memory_message_has_the_numbers_of_the_account(memory: Outcome) -> None:
    said = memory.said
    message = said["oom"]
    assert "GPU 0 has a total capacity of 8.00 GiB" in message
    assert f"of which {said['oom_free'] / 2**30:.2f} GiB is free" in message
    own = (said["after_empty_cache"] - (1 << 30)) / MIB
    assert f"this process has {own:.2f} MiB memory in use" in message
    assert re.search(r"Process \d+ has 1024\.00 MiB|1\.00 GiB memory in use", message)


def test_cublas_handle_needs_room_and_takes_it(memory: Outcome) -> None:
    said = memory.said
    assert said["free_before_cublas"] < GPU.cublas_handle_bytes
    assert "CUBLAS_STATUS_ALLOC_FAILED when calling `cublasCreate(handle)`" in said["cublas"]
    assert said["cublas_takes"] == GPU.cublas_handle_bytes
    assert [call.result for call in memory.calls if call.call == "cublasCreate"] == [3, 0]


def test_what_is_not_modelled_fails_and_names_itself_once(memory: Outcome) -> None:
    assert "cusolver" in memory.said["svd"].lower()
    assert "cufft" in memory.said["fft"].lower()
    assert memory.said["temperature"] == "Not Supported"
    named = re.findall(r"does not model (\w+)", memory.stderr)
    assert sorted(named) == [
        "cuModuleLoad",
        "cufftCreate",
        "cusolverDnCreate",
        "nvmlDeviceGetTemperature",
    ]
    assert memory.said["triton"] == 801
    assert "cuModuleLoad (Triton's kernels, and with them torch.compile)" in memory.stderr
    assert memory.said["resize"] == "Trying to resize storage that is not resizable"


def test_kernels_that_torch_compiles_itself_do_nothing_like_all_others(memory: Outcome) -> None:
    assert memory.said["jiterated"] == 0.0


def test_notes_say_what_differs_from_a_real_run(memory: Outcome) -> None:
    assert any("cuDNN" in note for note in memory.said["notes"])


def test_captured_graph_has_a_private_pool(graphs: Outcome) -> None:
    said = graphs.said
    assert said["capturing"]
    assert said["side_capturing"]
    assert not said["after_capture"]
    private = [s for s in said["segments"] if s["pool"] != [0, 0]]
    assert {s["stream"] for s in private} >= {said["side_stream"]}
    assert sum(s["size"] for s in private) == (20 + 20 + 2) * MIB
    assert "allocated in private pools (e.g., CUDA Graphs)" in said["oom"]


def test_waiting_inside_a_capture_spoils_it_as_on_a_device(graphs: Outcome) -> None:
    assert "captur" in graphs.said["sync_in_capture"]
    assert graphs.said["works_again"] == 0.0


@pytest.mark.parametrize("reuse", [True, False])
def test_captured_dependencies_tell_which_memory_is_free_again(reuse: bool, tmp_path: Path) -> None:
    if reuse and torch_build().release in ("2.6", "2.7", "2.8"):
        pytest.skip("this release has no graph_capture_record_stream_reuse")
    conf = "graph_capture_record_stream_reuse:True" if reuse else ""
    said = run_program("graph_reuse", tmp_path, conf=conf).said
    assert (said["waiting"] < 4) if reuse else (said["waiting"] == 4)
    assert "unjoined work" in said["unjoined"]


def test_mem_pool_streams_and_events(graphs: Outcome) -> None:
    said = graphs.said
    assert [s["pool"] for s in said["mem_pool"]] == [said["mem_pool_id"]]
    assert said["event_done"]
    assert said["elapsed_ms"] >= 0
    assert said["priority"] == -1
    assert messages(graphs) == []


def test_devices_have_accounts_of_their_own(devices: Outcome) -> None:
    said = devices.said
    overhead = GPU.context_bytes + MIB
    assert said["count"] == 2
    assert said["used_0"] == overhead + 100 * MIB
    assert said["used_1"] == overhead
    assert said["used_1_after"] == overhead + 100 * MIB
    assert said["allocated"] == [100 * MIB, 100 * MIB]
    assert said["nvml_used"] == [said["used_0_after"], said["used_1_after"]]
    assert [sum(processes) for processes in said["processes"]] == said["nvml_used"]
    assert not said["peer"]
    assert "invalid device ordinal" in said["no_such_device"]


@pytest.mark.parametrize(
    ("conf", "call"),
    [
        ("", "cudaMalloc"),
        ("expandable_segments:True", "cuMemCreate"),
        ("backend:cudaMallocAsync", "cudaMallocAsync"),
    ],
)
def test_training_runs_on_every_backend(conf: str, call: str, tmp_path: Path) -> None:
    outcome = run_program("training", tmp_path, conf=conf)
    said = outcome.said
    assert outcome.returncode == 0, outcome.stderr
    assert said["attention"] == [2, 8, 128, 64]
    assert said["image"] == [1, 16, 62, 62]
    assert said["peaks"][1] > said["peaks"][0] > said["parameters"] + said["optimizer_bytes"]
    assert any(made.call == call for made in outcome.calls)
    assert messages(outcome) == []
    assert said["reserved_at_end"] < said["reserved"]
    # The thread of autograd makes a cuBLAS handle of its own.
    handles = sum(made.bytes for made in outcome.calls if made.call == "cublasCreate")
    assert handles == 2 * GPU.cublas_handle_bytes
    assert said["device_used"] == said["reserved"] + GPU.context_bytes + handles
    if conf.startswith("expandable"):
        created = sum(c.bytes for c in outcome.calls if c.call == "cuMemCreate" and not c.result)
        released = sum(c.bytes for c in outcome.calls if c.call == "cuMemRelease")
        assert created - released == said["reserved_at_end"]
        assert set(said["expandable"]) == {True}


def test_torch_build_was_found_without_importing_torch() -> None:
    build = torch_build()
    assert build.version.startswith("2.")
    assert (build.directory / "version.py").is_file()
    if OTHER_PYTHON is None:
        assert "torch" not in sys.modules or build.directory.name == "torch"
