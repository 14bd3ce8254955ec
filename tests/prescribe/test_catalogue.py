"""The choice of remedies: what fits the cause, the platform, the release and what is set already; what must never be proposed."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.crashlog.messages import GIB, MIB, WORDINGS, Numbers, parenthesised
from tests.diagnose.builders import manifest, message, observation, phase, recording, text_case
from vramdoc.allocator.config import AllocatorConfig
from vramdoc.diagnose.engine import judge
from vramdoc.diagnose.rules import RULES
from vramdoc.evidence.case import Case
from vramdoc.prescribe.catalogue import CATALOGUE, candidates, split_size
from vramdoc.prescribe.circumstances import CONDITIONS
from vramdoc.prescribe.prescription import Prescription, VerificationStatus
from vramdoc.record.recording import ExitKind
from vramdoc.workload.spec import WorkloadSpec

FRAGMENTED = {"requested": 2, "total": 24, "free": 0.2, "allocated": 15, "unallocated": 8}
FULL = {"requested": 1, "total": 24, "free": 0.1, "allocated": 22.5, "unallocated": 0.1}
PLACES = {"bash", "powershell", "cmd", "python", "dockerfile", "kubernetes"}


def proposed(case: Case) -> dict[str, Prescription]:
    return {p.id: p for p in candidates(judge(case), case)}


@pytest.mark.parametrize("remedy", CATALOGUE.values(), ids=lambda r: r.id)
def test_an_entry_serves_known_causes_under_known_conditions(remedy):
    assert remedy.serves
    assert set(remedy.serves) <= {rule.id for rule in RULES}
    assert set(remedy.needs) <= CONDITIONS.keys()
    assert all((remedy.title, remedy.change, remedy.effect, remedy.risk, remedy.verify))
    WorkloadSpec(target="x", **remedy.workload_change)
    if remedy.settings:
        AllocatorConfig.parse(",".join(f"{k}:{v}" for k, v in remedy.settings.items()))


@pytest.mark.parametrize("rule", RULES, ids=lambda r: r.id)
def test_a_rule_and_its_remedies_name_each_other(rule):
    assert [r for r in rule.remedies if rule.id not in CATALOGUE[r].serves] == []


def test_every_entry_is_somebodys_remedy():
    assert sorted(CATALOGUE) == sorted({r for rule in RULES for r in rule.remedies})


def test_a_full_device_gets_no_allocator_option():
    for case in (
        message(**FULL),
        message(requested=0.09, total=8, free=0, allocated=7.13, unallocated=0.12),
    ):
        assert (
            not {"RX-EXPANDABLE", "RX-MAXSPLIT", "RX-ROUND", "RX-ASYNC", "RX-EMPTYCACHE"}
            & proposed(case).keys()
        )


@given(
    requested=st.integers(2 * MIB, 40 << 30), free=st.integers(0, 4 << 30), allocated=st.integers(1 << 30, 80 << 30), unallocated=st.integers(0, 20 << 30)
)  # fmt: skip
def test_no_figures_make_both_a_full_device_and_an_allocator_option(**numbers):
    total = numbers["allocated"] + numbers["unallocated"] + numbers["free"] + GIB
    case = text_case(WORDINGS["2.2"](Numbers(total=total, **numbers)))
    verdicts = judge(case)
    full = any(v.id == "true-capacity" and str(v.outcome) == "confirmed" for v in verdicts)
    ids = {p.id for p in candidates(verdicts, case)}
    assert not (full and {"RX-EXPANDABLE", "RX-MAXSPLIT"} & ids)
    assert "RX-EMPTYCACHE" not in ids


def test_fragmentation_on_linux_gets_expandable_segments_for_every_place():
    found = proposed(message(**FRAGMENTED))
    expandable = found["RX-EXPANDABLE"]
    assert next(iter(found)) == "RX-EXPANDABLE"
    assert expandable.alloc_conf == "expandable_segments:True"
    assert expandable.snippets.keys() == PLACES
    assert all("expandable_segments:True" in text for text in expandable.snippets.values())
    assert "RX-MAXSPLIT" not in found


@pytest.mark.parametrize(
    "text",
    [
        'File "C:\\venv\\lib\\site-packages\\torch\\x.py", line 1, in f\n'
        + message(**FRAGMENTED).oom.text,
        parenthesised(
            Numbers(
                requested=2 * GIB, total=24 * GIB, free=0, allocated=15 * GIB, unallocated=8 * GIB
            )
        ),
        "PYTORCH_CUDA_ALLOC_CONF=expandable_segments:True\n" + message(**FRAGMENTED).oom.text,
    ],
    ids=["windows", "before 2.1", "on already"],
)
def test_expandable_segments_are_not_proposed_where_they_do_nothing(text: str):
    assert "RX-EXPANDABLE" not in proposed(text_case(text))


def test_what_is_set_already_is_kept_or_dropped_knowingly():
    text = (
        "export PYTORCH_CUDA_ALLOC_CONF=roundup_power2_divisions:4,max_split_size_mb:128\n"
        + message(**FRAGMENTED).oom.text
    )
    found = proposed(text_case(text))
    assert found["RX-EXPANDABLE"].alloc_conf == "expandable_segments:True"
    assert found["RX-ROUND"].alloc_conf == "roundup_power2_divisions:8,max_split_size_mb:128"
    assert "RX-MAXSPLIT" not in found


@pytest.mark.parametrize(
    ("release", "in_use", "variable"),
    [
        ("2.6.0", "", "PYTORCH_CUDA_ALLOC_CONF"),
        ("2.9.1", "PYTORCH_ALLOC_CONF", "PYTORCH_CUDA_ALLOC_CONF"),
        ("2.10.0", "PYTORCH_ALLOC_CONF", "PYTORCH_ALLOC_CONF"),
        ("2.14.1", "", "PYTORCH_CUDA_ALLOC_CONF"),
    ],
)
def test_the_variable_is_one_that_the_release_reads_and_never_a_second_one(
    release: str, in_use: str, variable: str
):
    setting = f"{in_use}=roundup_power2_divisions:4\n" if in_use else ""
    case = text_case(f"torch=={release}\n{setting}" + message(**FRAGMENTED).oom.text)
    assert (
        proposed(case)["RX-EXPANDABLE"].snippets["bash"]
        == f"export {variable}='expandable_segments:True'"
    )


def test_a_text_can_verify_nothing_and_says_which_command_would():
    for prescription in proposed(message(**FRAGMENTED)).values():
        assert prescription.verification.status is VerificationStatus.NOT_TRIED
        assert "text alone" in prescription.verification.reason
        assert prescription.verification.command
    command = proposed(message(**FRAGMENTED))["RX-EXPANDABLE"].verification.command
    assert (
        command == "vramdoc record --alloc-conf 'expandable_segments:True' -- python your_script.py"
    )


def test_a_starved_cublas_handle_gets_changes_that_a_rerun_can_try():
    made = manifest(
        ExitKind.CUBLAS,
        observations=(observation("cublas-handle", ok=False, driver_free_bytes=16 * MIB),),
    )
    found = proposed(recording(made))
    assert {i: p.workload_change for i, p in found.items() if p.workload_change} == {
        "RX-WARMHANDLE": {"warm_cublas": True},
        "RX-FRACTION": {"memory_fraction": 0.9},
        "RX-EMPTYCACHE": {"empty_cache": True},
    }


def test_a_mere_likelihood_justifies_no_costly_change():
    case = text_case(
        "RuntimeError: CUDA error: CUBLAS_STATUS_ALLOC_FAILED when calling `cublasCreate(handle)`"
    )
    assert "RX-BATCH" not in proposed(case)


def test_a_recorded_kv_cache_gets_a_static_one_to_try():
    made = manifest(
        ExitKind.OUT_OF_MEMORY,
        phases=(phase("load", kv_bytes=0), phase("decode", kv_bytes=9 * GIB)),
    )
    case = recording(
        made, oom=message(requested=1, total=24, free=0, allocated=23.2, unallocated=0.05).oom
    )
    assert proposed(case)["RX-STATIC"].workload_change == {"cache": "static"}


def test_other_backends_get_no_cuda_advice():
    xpu = text_case(
        "torch.OutOfMemoryError: XPU out of memory. Tried to allocate 5.00 GiB. GPU 0 has a total capacity of 15.11 GiB. Of the allocated memory "
        "1.00 GiB is allocated by PyTorch, and 0 bytes is reserved by PyTorch but unallocated."
    )
    assert set(proposed(xpu)) == {"RX-XPULIMIT"}


def test_the_emptiest_gpu_of_a_table_is_the_one_to_choose():
    rows = "".join(
        f"[{n}] Tesla V100 | 40'C,   0 % | {used} / 16130 MB |\n"
        for n, used in enumerate((15900, 12000, 3, 40))
    )
    found = proposed(text_case("RuntimeError: CUDA error: out of memory\n" + rows))
    assert "CUDA_VISIBLE_DEVICES='2'" in found["RX-OTHERPROC"].snippets["bash"]


def test_the_split_size_stays_below_the_request():
    assert [split_size(n * MIB) for n in (20, 64, 200, 900, 100_000)] == [64, 64, 128, 512, 1024]


@pytest.mark.parametrize("wording", WORDINGS)
def test_equal_cases_get_equal_prescriptions(wording: str):
    case = text_case(WORDINGS[wording](Numbers()))
    assert candidates(judge(case), case) == candidates(judge(case), case)


KILLED = "RuntimeError: DataLoader worker (pid 7) is killed by signal: Killed."


@pytest.mark.parametrize(
    ("text", "remedy"),
    [
        ("RuntimeError: DataLoader worker (pid 7) is killed by signal: Bus error.", "RX-SHM"),
        ("OSError: [WinError 1455] The paging file is too small for this operation", "RX-PAGEFILE"),
        (f"  File \"d.py\", line 3, in _pin_memory_loop\n    pin_memory(batch)\n{KILLED}", "RX-PINNED"),
        (KILLED, "RX-HOST"),
    ],
)  # fmt: skip
def test_each_store_of_the_host_has_its_own_remedy(text: str, remedy: str):
    found = proposed(text_case(text))
    assert next(iter(found)) == remedy
    assert ("--shm-size" in str(found)) == (remedy == "RX-SHM")


def test_ranks_that_meet_on_one_gpu_are_given_their_own():
    listed = " ".join(f"Process {pid} has 19.50 GiB memory in use." for pid in (811, 812, 813, 814))
    case = text_case(
        f"torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 40.00 MiB. GPU 0 has a total capacity of 79.10 GiB of which 10.00 MiB is free. {listed} "
        "Of the allocated memory 18.90 GiB is allocated by PyTorch, and 100.00 MiB is reserved by PyTorch but unallocated."
    )
    assert next(iter(proposed(case))) == "RX-SETDEV"


@pytest.mark.parametrize(
    ("sign", "flag"),
    [
        ("(EngineCore_0 pid=7) vllm", "--gpu-memory-utilization"),
        ("sglang scheduler", "--mem-fraction-static"),
        ("text_generation_launcher", "--cuda-memory-fraction"),
    ],
)
def test_a_full_engine_is_told_its_own_flags_and_nothing_about_training(sign: str, flag: str):
    case = text_case(f"{sign}: {message(**FULL).oom.text}")
    found = proposed(case)
    assert next(iter(found)) == "RX-ENGINEROOM"
    assert flag in found["RX-ENGINEROOM"].snippets["bash"]
    assert not {"RX-BATCH", "RX-CHECKPOINT", "RX-PAGED"} & found.keys()


def test_training_is_told_to_recompute_activations_and_nothing_about_caches():
    frame = '  File "train.py", line 9, in step\n    loss.backward()\n'
    found = proposed(text_case(frame + message(**FULL).oom.text))
    assert next(iter(found)) == "RX-CHECKPOINT"
    assert not {"RX-STATIC", "RX-KVQUANT", "RX-PAGED"} & found.keys()


def test_the_engine_is_asked_for_the_length_that_it_says_fits():
    found = proposed(
        text_case(
            "vllm: The model's max seq len (32768) is larger than the maximum number of tokens that can be stored in KV cache (12352)."
        )
    )
    assert "--max-model-len 12352" in found["RX-MAXLEN"].snippets["bash"]


def test_a_release_without_options_gets_none():
    case = text_case(
        "RuntimeError: CUDA out of memory. Tried to allocate 2.00 GiB (GPU 0; 16.00 GiB total capacity; 9.00 GiB already allocated; 1.00 GiB free; 5.00 GiB cached)"
    )
    found = proposed(case)
    assert next(iter(found)) == "RX-UPGRADE"
    assert [p.id for p in found.values() if p.alloc_conf] == []


@pytest.mark.parametrize(
    ("text", "flag"),
    [
        ("Not enough memory. Please try to increase --mem-fraction-static.", "--context-length"),
        (
            "No available memory for the cache blocks. Try increasing `gpu_memory_utilization` when initializing the engine.",
            "--max-model-len",
        ),
    ],
    ids=["sglang", "vllm"],
)
def test_an_engine_known_by_its_message_alone_gets_its_own_flags(text: str, flag: str):
    found = proposed(text_case(f"ValueError: {text}"))
    assert flag in found["RX-MAXLEN"].snippets["bash"]
    assert "RX-STATIC" not in found


@pytest.mark.parametrize(
    ("backend", "variable", "command"),
    [
        ("CUDA", "CUDA_VISIBLE_DEVICES", "nvidia-smi"),
        ("HIP", "HIP_VISIBLE_DEVICES", "rocm-smi"),
        ("NPU", "ASCEND_RT_VISIBLE_DEVICES", "npu-smi"),
    ],
)
def test_a_busy_device_is_looked_at_with_its_vendors_own_tools(
    backend: str, variable: str, command: str
):
    case = text_case(
        f"RuntimeError: {backend} out of memory. Tried to allocate 2.00 GiB ({backend} 0; 60.00 GiB total capacity; 8.00 GiB already allocated; 1.00 GiB free; 9.00 GiB reserved in total by PyTorch)"
    )
    bash = proposed(case)["RX-OTHERPROC"].snippets["bash"]
    assert variable in bash
    assert bash.startswith(command)


def test_an_allocator_of_another_vendor_gets_none_of_cudas_options():
    case = text_case(
        "RuntimeError: NPU out of memory. Tried to allocate 2.00 GiB (NPU 0; 24.00 GiB total capacity; 15.00 GiB already allocated; 0.50 GiB free; 23.00 GiB reserved in total by PyTorch)"
    )
    assert [p.id for p in proposed(case).values() if p.alloc_conf] == []


def test_a_macs_other_programs_are_closed_where_they_hold_most():
    case = text_case(
        "RuntimeError: MPS backend out of memory (MPS allocated: 2.00 GB, other allocations: 6.00 GB, max allowed: 8.00 GB). Tried to allocate 512.00 MB on private pool."
    )
    assert next(iter(proposed(case))) == "RX-MPSOTHERS"


def test_an_engine_without_room_for_any_cache_is_given_more_before_less_is_asked_of_it():
    found = proposed(text_case("vllm: ValueError: No available memory for the cache blocks."))
    assert next(iter(found)) == "RX-ENGINEMORE"
