"""Each rule confirms, rules out and cannot tell; the texts are made here after the causes, with the messages' stable parts."""

from __future__ import annotations

import pytest

from tests.crashlog.messages import GIB, MIB
from tests.diagnose.builders import (
    gib,
    held,
    leading,
    manifest,
    message,
    observation,
    phase,
    recording,
    said,
    text_case,
    verdict,
)
from vramdoc.diagnose.engine import judge, primary
from vramdoc.diagnose.verdict import Confidence, Outcome, Severity
from vramdoc.evidence.case import Case
from vramdoc.evidence.oom import OomAnatomy
from vramdoc.facts import Fact, Source
from vramdoc.lint.violation import Level, Violation
from vramdoc.record.recording import Exit, ExitKind

CREATE = "RuntimeError: CUDA error: CUBLAS_STATUS_ALLOC_FAILED when calling `cublasCreate(handle)`"
ASSERT = "/pytorch/aten/src/ATen/native/cuda/Loss.cu:250: nll_loss: block: [0,0,0], thread: [3,0,0] Assertion `t >= 0 && t < n_classes` failed."
RESIZE = "RuntimeError: Trying to resize storage that is not resizable"
BARE = "RuntimeError: CUDA error: out of memory"
SMI = """+---+
|   0  Tesla T4                       Off | 00000000:00:04.0 Off |                    0 |
| N/A   44C    P0    26W /  70W |  {used}MiB / 15360MiB |      0%      Default |
"""
CACHE = """Traceback (most recent call last):
  File "/srv/lib/python3.11/site-packages/transformers/cache_utils.py", line 96, in update
    self.keys = torch.cat([self.keys, key_states], dim=-2)
"""
FULL = {"requested": 1, "total": 24, "free": 0.1, "allocated": 22.5, "unallocated": 0.1}


def violation(rule_id: str, text: str) -> Violation:
    return Violation(
        id=rule_id, level=Level.ERROR, path="run.py", line=5, column=1, message=text, end_line=5
    )


def anatomy(**sizes: int) -> OomAnatomy:
    extra = {
        n: Fact(n, v, "bytes", Source.VIRTUAL_GPU, "")
        for n, v in sizes.items()
        if n.startswith(("inactive", "pending", "rounding"))
    }
    facts = {
        n: Fact(n, v, "bytes", Source.VIRTUAL_GPU, "") for n, v in sizes.items() if n not in extra
    }
    return OomAnatomy(**facts, extra=extra)


CONFIRMED = [
    # (id, case, words that must be in the answer)
    ("true-capacity", message(**FULL), "is full"),
    ("true-capacity", text_case("CUDA out of memory. Tried to allocate more than 1EB memory. (GPU 0; 8.00 GiB total capacity; 1.00 GiB already allocated; 6.00 GiB free; 1.10 GiB reserved in total by PyTorch)"), "1 EB"),
    ("fragmentation", message(requested=2, total=24, free=0.2, allocated=15, unallocated=8), "idle"),
    ("foreign-process", message(requested=2, total=24, free=0.1, allocated=3, unallocated=0.1, process=4, others=((9, 19.5),)), "Other processes hold"),
    ("foreign-process", text_case(f"{BARE}\n{SMI.format(used=15100)}"), "GPU 0 is full already"),
    ("foreign-process", text_case("ValueError: Free memory on device (2.50/23.60 GiB) on startup is less than desired GPU memory utilization (0.9, 21.24 GiB)."), "before this engine"),
    ("foreign-process", text_case("Error in memory profiling. Initial free memory 20.10 GiB, current free memory 22.00 GiB."), "another process"),
    ("memory-limit", message(requested=0.1, total=48, free=23, allowed=24, allocated=23.5, unallocated=0.45), "not permitted"),
    ("memory-limit", text_case("[HAMI-core ERROR (pid:7 thread=9 allocator.c:53)]: Device 0 OOM 3221225472 / 2147483648\nRuntimeError: CUDA error: unrecognized error code"), "HAMi allows 2.00 GiB, and this request would have made it 3.00 GiB"),
    ("host-oom", text_case("['python', 'train.py'] exits with return code = -7"), "df -h /dev/shm"),
    ("host-oom", text_case("failed to alloc 4096 bytes on host: CUDA_ERROR_OUT_OF_MEMORY: out of memory"), "Page-locked"),
    ("memory-limit", text_case("CUDA out of memory. Allocation was preemptively rejected because it would exceed per_process_memory_fraction limit. Requested size: 96.00 MiB"), "96.00 MiB"),
    ("memory-limit", text_case("torch.OutOfMemoryError: XPU out of memory. Tried to allocate 5.00 GiB. GPU 0 has a total capacity of 15.11 GiB. Of the allocated memory 1.00 GiB is allocated by PyTorch, and 0 bytes is reserved by PyTorch but unallocated. Please use `empty_cache` to release."), "single allocation"),
    ("memory-limit", text_case("ValueError: Free memory on device (22.60/23.60 GiB) on startup is less than desired GPU memory utilization (0.98, 23.13 GiB)."), "context and desktop"),
    ("non-pytorch-memory", message(requested=1.27, total=79.3, free=0.11, allocated=67.7, unallocated=1.47, process=79.19), "outside PyTorch's pool"),
    ("graph-private-pool", message(requested=0.5, total=24, free=0.1, allocated=22, unallocated=0.2, private_pools=3, process=23.5), "keep 3.00 GiB idle"),
    ("kv-growth", text_case(CACHE + message(**FULL).oom.text), "cache_utils.py:96"),
    ("kv-growth", text_case("ValueError: The model's max seq len (8192) is larger than the maximum number of tokens that can be stored in KV cache (4096)."), "4096 tokens fit"),
    ("kv-growth", text_case("IndexError: index_copy_(): index 16 is out of bounds for dimension 2 with size 16"), "outgrew"),
    ("kv-growth", text_case("ValueError: No available memory for the cache blocks."), "nothing of the engine's budget"),
    ("leak", text_case('  File "eval.py", line 3, in evaluation_loop\n    preds_host = nested_concat(preds_host, logits)\n' + message(**FULL).oom.text), "every evaluation batch"),
    ("leak", text_case("".join(f"step {n} GPU memory allocated: {n}.00 GiB\n" for n in range(2, 12)) + BARE), "rising from 2.00 GiB to 11.00 GiB"),
    ("cublas-handle-no-vram", text_case(f"{BARE}\n{CREATE}"), "same log"),
    ("cublas-masked-device-assert", text_case(f"{ASSERT}\n{CREATE}"), "label is outside"),
    ("cublas-masked-device-assert", text_case("RuntimeError: CUDA error: device-side assert triggered"), "not a memory problem"),
    ("cublas-masked-device-assert", text_case(CREATE, violations=(violation("VD504", "ids go up to 60000, gpt2 has 50257 rows"),)), "60000"),
    ("cublas-library-mismatch", text_case("RuntimeError: CUDA error: CUBLAS_STATUS_INVALID_VALUE when calling `cublasGemmEx( handle"), "LD_LIBRARY_PATH"),
    ("cublas-library-mismatch", text_case("CUDA error: no kernel image is available for execution on the device"), "architecture"),
    ("resize-not-resizable", text_case('  File "a.py", line 3, in grow\n    buffer.resize_(n)\n' + RESIZE), "buffer.resize_(n)"),
    ("ragged-batch", text_case(f"RuntimeError: Caught RuntimeError in DataLoader worker process 0.\n{RESIZE}"), "different shapes"),
    ("ragged-batch", text_case("RuntimeError: stack expects each tensor to be equal size, but got [3] at entry 0 and [4] at entry 2"), "[4] at entry 2"),
    ("conf-error", text_case("RuntimeError: Unrecognized CachingAllocator option: max_split_size_mb=512"), "max_split_size_mb:512"),
    ("conf-error", text_case("RuntimeError: Unrecognized CachingAllocator option: max_split_size"), "max_split_size_mb"),
    ("conf-error", text_case("RuntimeError: Unrecognized CachingAllocator option: expandable_segments"), "too old"),
    ("conf-error", text_case("ValueError: Expected 'True' or 'False' at index 2 in ConfigTokenizer but got 'true'"), "True or False"),
    ("conf-error", text_case("RuntimeError: !block->expandable_segment_ INTERNAL ASSERT FAILED"), "expandable_segments together"),
    ("conf-unsupported-platform", text_case("UserWarning: expandable_segments not supported on this platform"), "only a warning"),
    ("conf-unsupported-platform", text_case("RuntimeError: The kernel on this machine does not support the pidfd_open syscall needed"), "5.3"),
    ("conf-ineffective", text_case("UserWarning: backend:cudaMallocAsync ignores max_split_size_mb"), "ignores max_split_size_mb"),
    ("conf-ineffective", recording(manifest(versions={"torch": "2.9.1"}, environment={"PYTORCH_ALLOC_CONF": "expandable_segments:True"})), "reads only PYTORCH_CUDA_ALLOC_CONF"),
    ("host-oom", text_case("RuntimeError: [enforce fail at alloc_cpu.cpp:75] . DefaultCPUAllocator: can't allocate memory: you tried to allocate 4096 bytes."), "RAM"),
    ("host-oom", text_case("Process finished with exit code 137"), "killed from outside"),
    ("host-oom", text_case("ERROR: Unexpected bus error encountered in worker. This might be caused by insufficient shared memory (shm)."), "/dev/shm"),
    ("host-oom", text_case('  File "/x/torch/utils/data/_utils/pin_memory.py", line 50, in pin_memory\n    return data.pin_memory()\n' + BARE), "Page-locked"),
    ("host-oom", recording(manifest(ExitKind.HOST_OOM)), "out-of-memory killer"),
]  # fmt: skip


@pytest.mark.parametrize(
    ("rule_id", "case", "words"), CONFIRMED, ids=[f"{n}-{c[0]}" for n, c in enumerate(CONFIRMED)]
)
def test_a_rule_confirms_its_cause_and_it_leads(rule_id: str, case: Case, words: str):
    found = verdict(case, rule_id)
    assert found.outcome is Outcome.CONFIRMED, found.summary
    assert found.evidence
    assert words in " ".join((found.summary, *found.notes))
    assert leading(case) == rule_id


RULED_OUT = [
    ("true-capacity", message(requested=0.02, total=4, free=2.35, allocated=0.8, unallocated=0.02)),
    ("fragmentation", message(**FULL)),
    ("foreign-process", message(**FULL, process=23.9)),
    ("memory-limit", message(**FULL)),
    ("non-pytorch-memory", message(**FULL, process=23.4)),
    ("graph-private-pool", message(**FULL, private_pools=0.05)),
    ("kv-growth", text_case(RESIZE)),
    ("leak", text_case(RESIZE)),
    ("cublas-handle-no-vram", text_case(f"{ASSERT}\n{CREATE}")),
    ("cublas-handle-no-vram", text_case(f"{CREATE}\n{SMI.format(used=2000)}")),
    ("cublas-masked-device-assert", text_case("RuntimeError: CUDA error: CUBLAS_STATUS_INVALID_VALUE when calling `cublasGemmEx( handle")),
    ("cublas-library-mismatch", text_case(f"{ASSERT}\n{CREATE}")),
    ("resize-not-resizable", text_case(f"RuntimeError: Caught RuntimeError in DataLoader worker process 0.\n{RESIZE}")),
    ("resize-not-resizable", text_case("RuntimeError: cannot resize variables that require grad")),
    ("ragged-batch", text_case('  File "a.py", line 3, in grow\n    buffer.resize_(n)\n' + RESIZE)),
    ("conf-error", text_case(RESIZE)),
    ("conf-unsupported-platform", text_case(RESIZE)),
    ("conf-ineffective", text_case(RESIZE)),
    ("host-oom", text_case(f"{message(**FULL).oom.text}\nProcess finished with exit code 137")),
]  # fmt: skip


@pytest.mark.parametrize(
    ("rule_id", "case"), RULED_OUT, ids=[f"{n}-{c[0]}" for n, c in enumerate(RULED_OUT)]
)
def test_a_rule_rules_its_cause_out(rule_id: str, case: Case):
    assert verdict(case, rule_id).outcome is Outcome.RULED_OUT


UNDECIDED = [
    ("true-capacity", text_case(BARE)),
    ("fragmentation", text_case(BARE)),
    ("foreign-process", message(old=True, requested=1, total=24, free=0.1, allocated=19, unallocated=0.1)),
    ("foreign-process", text_case(BARE)),
    ("memory-limit", message(requested=0.02, total=4, free=2.35, allocated=0.8, unallocated=0.02)),
    ("non-pytorch-memory", message(old=True, requested=1, total=24, free=0.1, allocated=17, unallocated=0.1)),
    ("graph-private-pool", text_case(BARE)),
    ("kv-growth", message(**FULL)),
    ("leak", message(**FULL)),
    ("cublas-handle-no-vram", text_case("hello")),
    ("cublas-masked-device-assert", text_case(CREATE)),
    ("cublas-library-mismatch", text_case(CREATE)),
    ("resize-not-resizable", text_case("hello")),
    ("conf-error", text_case("hello")),
    ("conf-unsupported-platform", text_case("RuntimeError: CUDA driver error: invalid argument")),
    ("conf-ineffective", text_case("Warning: PYTORCH_CUDA_ALLOC_CONF is deprecated, use PYTORCH_ALLOC_CONF instead")),
    ("host-oom", text_case("[INFO] [launch.py:315:sigkill_handler] Killing subprocess 41")),
]  # fmt: skip


@pytest.mark.parametrize(
    ("rule_id", "case"), UNDECIDED, ids=[f"{n}-{c[0]}" for n, c in enumerate(UNDECIDED)]
)
def test_a_rule_says_what_is_missing_when_it_cannot_tell(rule_id: str, case: Case):
    found = verdict(case, rule_id)
    assert found.outcome is Outcome.UNDECIDED
    assert found.missing


def test_a_lone_cublas_create_is_likely_memory_and_never_certain():
    case = text_case(CREATE)
    found = verdict(case, "cublas-handle-no-vram")
    assert leading(case) == found.id
    assert found.confidence is Confidence.LOW
    assert "do not prove it" in found.summary


@pytest.mark.parametrize(
    ("free", "layout", "words"),
    [
        (16 * MIB, held(reserved_bytes=23 * GIB, allocated_bytes=15 * GIB, returnable_bytes=7 * GIB), "wholly idle segments"),
        (16 * MIB, held(reserved_bytes=23 * GIB, allocated_bytes=15 * GIB, returnable_bytes=0), "partly used segments"),
        (16 * MIB, held(reserved_bytes=23 * GIB, allocated_bytes=23 * GIB), "full of live tensors"),
    ],
)  # fmt: skip
def test_a_recorded_cublas_failure_tells_hoarding_fragmentation_and_a_full_device_apart(
    free, layout, words
):
    made = manifest(
        ExitKind.CUBLAS,
        observations=(observation("cublas-handle", ok=False, driver_free_bytes=free),),
    )
    found = verdict(recording(made, fragmentation=layout), "cublas-handle-no-vram")
    assert found.outcome is Outcome.CONFIRMED
    assert words in found.summary
    assert found.confidence is Confidence.HIGH


def test_a_recorded_cublas_failure_with_much_free_memory_is_not_memory():
    made = manifest(
        ExitKind.CUBLAS,
        observations=(observation("cublas-handle", ok=False, driver_free_bytes=4 * GIB),),
    )
    assert verdict(recording(made), "cublas-handle-no-vram").outcome is Outcome.RULED_OUT


def test_a_recorded_resize_names_the_file_behind_the_tensor():
    made = manifest(
        ExitKind.RESIZE,
        observations=(
            observation(
                "resize", operation="aten::resize_", wanted_bytes=4000, owned_bytes=64, file="grow.py", line=7,
                origin={"kind": "file", "path": "/home/someone/secret/model.safetensors"},
            ),
        ),
    )  # fmt: skip
    case = recording(made)
    assert leading(case) == "resize-not-resizable"
    assert "model.safetensors" in said(case)
    assert "secret" not in said(case)


def test_a_snapshots_block_list_makes_fragmentation_certain():
    made = manifest(ExitKind.OUT_OF_MEMORY)
    oom = anatomy(
        requested=2 * GIB, total=24 * GIB, free=gib(0.2), allocated=15 * GIB, unallocated=8 * GIB, largest_hole=GIB,
        inactive_usable=7 * GIB, inactive_other_stream=GIB, rounding=0,
    )  # fmt: skip
    found = verdict(recording(made, oom=oom), "fragmentation")
    assert found.confidence is Confidence.HIGH
    assert "1.00 GiB" in found.summary
    assert {"inactive_usable", "inactive_other_stream"} <= {fact.name for fact in found.evidence}


def test_a_recordings_foreign_bytes_are_other_processes():
    device = manifest().device
    from dataclasses import replace

    made = manifest(ExitKind.OUT_OF_MEMORY, device=replace(device, foreign_bytes=10 * GIB))
    oom = anatomy(
        requested=GIB, total=24 * GIB, free=0, allocated=gib(13.4), unallocated=0, rounding=0
    )
    assert leading(recording(made, oom=oom)) == "foreign-process"


def test_a_recorded_kv_cache_that_is_larger_than_the_shortage_leads():
    made = manifest(
        ExitKind.OUT_OF_MEMORY,
        phases=(phase("load", kv_bytes=0), phase("decode", kv_bytes=6 * GIB)),
    )
    oom = anatomy(
        requested=GIB, total=24 * GIB, free=0, allocated=23 * GIB, unallocated=0, rounding=0
    )
    case = recording(made, oom=oom)
    assert leading(case) == "kv-growth"
    assert "6.00 GiB" in said(case)


def test_a_recorded_run_that_cannot_even_load_is_capacity_and_not_the_cache():
    made = manifest(ExitKind.OUT_OF_MEMORY, phases=(phase("load", kv_bytes=0),))
    oom = anatomy(
        requested=GIB, total=24 * GIB, free=0, allocated=23 * GIB, unallocated=0, rounding=0
    )
    assert leading(recording(made, oom=oom)) == "true-capacity"


def growth(per_step: int, grown: int, at_site: int):
    from vramdoc.evidence.attribution import Site
    from vramdoc.evidence.growth import Growth, SiteGrowth

    site = SiteGrowth(
        site=Site("train.py", 42, "step"),
        per_step_bytes=per_step,
        grown_bytes=at_site,
        count=9,
        rising_steps=9,
    )
    return Growth(
        per_step_bytes=per_step,
        grown_bytes=grown,
        steps=9,
        sites=(site,),
        period_source="phase 'step'",
        steps_are_marked=True,
    )


def test_growth_at_one_line_is_a_leak_and_names_the_line():
    case = recording(manifest(), growth=growth(100 * MIB, 900 * MIB, 880 * MIB))
    assert leading(case) == "leak"
    assert "train.py:42 (step)" in said(case)


@pytest.mark.parametrize(
    ("measured", "made"),
    [
        (growth(0, 0, 0), manifest()),
        (growth(100 * MIB, 900 * MIB, 100 * MIB), manifest()),
        (
            growth(100 * MIB, 900 * MIB, 880 * MIB),
            manifest(phases=(phase("decode", kv_bytes=GIB),)),
        ),
    ],
    ids=["flat", "spread over many lines", "the KV cache"],
)
def test_growth_that_is_no_leak_is_not_called_one(measured, made):
    assert verdict(recording(made, growth=measured), "leak").outcome is Outcome.RULED_OUT


def test_a_model_whose_weights_do_not_fit_says_by_how_much():
    made = manifest(ExitKind.OUT_OF_MEMORY, phases=(phase("load", weight_bytes=30 * GIB),))
    oom = anatomy(
        requested=32 * MIB,
        total=24 * GIB,
        free=MIB,
        allocated=23 * GIB,
        unallocated=100 * MIB,
        rounding=0,
    )
    case = recording(made, oom=oom)
    assert leading(case) == "true-capacity"
    assert "are lacking for the weights alone" in said(case)
    assert verdict(case, "true-capacity").confidence is Confidence.HIGH


def test_a_run_that_ended_well_is_healthy_even_with_holes_in_its_pool():
    layout = held(reserved_bytes=10 * GIB, allocated_bytes=7 * GIB, external_bytes=2 * GIB)
    case = recording(manifest(), fragmentation=layout)
    assert leading(case) == "healthy"
    assert verdict(case, "fragmentation").severity is Severity.INFO


def test_options_that_do_nothing_are_found_in_a_recording():
    made = manifest(alloc_conf="backend:cudaMallocAsync,max_split_size_mb:128")
    assert "ignores max_split_size_mb" in verdict(recording(made), "conf-ineffective").summary


def test_a_setting_passed_in_a_call_leads_when_the_error_is_about_it():
    text = (
        "RuntimeError: MPS backend out of memory (MPS allocated: 2.00 GB, other allocations: 4.00 GB, max allowed: 5.90 GB). Tried to allocate 10.00 MB on "
        "private pool. Use PYTORCH_MPS_HIGH_WATERMARK_RATIO=0.0 to disable upper limit for memory allocations."
    )
    found = violation(
        "VD007",
        "PYTORCH_MPS_HIGH_WATERMARK_RATIO is read from the environment only; as an argument it has no effect",
    )
    assert leading(text_case(text)) == "memory-limit"
    assert leading(text_case(text, violations=(found,))) == "conf-ineffective"


def test_an_exit_without_a_message_is_a_failure_without_a_cause():
    case = recording(manifest(exit=Exit(kind=ExitKind.EXCEPTION, message="ValueError: no")))
    assert leading(case) == "undecided"


TIGHT = (
    "torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 2.00 GiB. GPU 0 has a total capacity of 24.00 GiB of which "
    "1.00 GiB is free. Of the allocated memory 22.00 GiB is allocated by PyTorch, and 100.00 MiB is reserved by PyTorch but unallocated."
)


@pytest.mark.parametrize(
    ("said", "id_"),
    [
        ("GPU memory grows with every message of the chat until this:", "kv-growth"),
        ("The memory keeps increasing for each new question.", "kv-growth"),
        ("After a few messages it always runs out of memory.", "kv-growth"),
        ("It runs out of memory with the first message.", "true-capacity"),
        ("Memory usage is constant; every question is answered.", "true-capacity"),
        ("The memory grows with every training iteration.", "true-capacity"),
        ("My memory of every turn of this conversation is dim.", "true-capacity"),
    ],
)
def test_growth_with_every_turn_that_a_person_reports_points_at_the_conversation(
    said: str, id_: str
):
    case = text_case(f"{said}\n{TIGHT}")
    verdicts = judge(case)
    assert primary(verdicts, case) == id_


def test_a_long_talk_does_not_explain_what_others_hold():
    oom = message(old=True, requested=0.1, total=24, free=0.05, allocated=6, unallocated=0.01).oom
    assert oom is not None
    case = text_case(f"After a few messages it always runs out of memory.\n{oom.text}")
    assert leading(case) == "foreign-process"


def test_tgis_sentence_in_place_of_an_error_decides_nothing():
    case = text_case(
        "Error: Warmup(Generation('Not enough memory to handle 4096 prefill tokens. You need to decrease `--max-batch-prefill-tokens`'))"
    )
    assert leading(case) == "undecided"
    assert "--max-batch-prefill-tokens" in verdict(case, "true-capacity").summary


def test_an_account_below_zero_is_no_limit():
    case = text_case(
        f"[HAMI-core ERROR (pid:7 thread=9 allocator.c:53)]: Device 0 OOM {2**64 - 4096} / 2147483648"
    )
    assert leading(case) == "undecided"
    assert "wrapped around" in verdict(case, "memory-limit").summary


def test_reported_growth_without_a_failure_decides_nothing():
    case = text_case("GPU memory grows with every message of the chat.")
    assert primary(judge(case), case) == "undecided"


def test_growth_from_step_to_step_that_a_person_reports_is_cited_and_stays_open():
    case = text_case(f"GPU memory increases with every epoch.\n{TIGHT}")
    found = verdict(case, "leak")
    assert found.outcome is Outcome.UNDECIDED
    assert [fact.name for fact in found.evidence] == ["reported_growth"]
    assert "recording" in " ".join(found.missing)


def test_a_resize_in_a_datasets_own_code_is_not_the_batch_of_its_worker():
    worker = (
        "RuntimeError: Caught RuntimeError in DataLoader worker process 1.\nOriginal Traceback (most recent call last):\n"
        '  File "/x/torch/utils/data/_utils/worker.py", line 9, in _worker_loop\n    data = fetcher.fetch(index)\n'
    )
    own = '  File "/srv/set.py", line 4, in __getitem__\n    frame.resize_(3, 64, 64)\n'
    default = '  File "/x/torch/utils/data/_utils/collate.py", line 9, in collate_tensor_fn\n    return torch.stack(batch, 0, out=out)\n'
    assert leading(text_case(worker + own + RESIZE)) == "resize-not-resizable"
    assert leading(text_case(worker + default + RESIZE)) == "ragged-batch"


def test_a_resize_message_that_stands_alone_is_likely_a_batch_and_never_certain():
    alone = text_case(RESIZE)
    found = verdict(alone, "ragged-batch")
    assert (found.outcome, found.confidence) == (Outcome.CONFIRMED, Confidence.LOW)
    assert verdict(alone, "resize-not-resizable").outcome is Outcome.UNDECIDED
    assert "num_workers=0" in said(alone)
    loading = text_case(f"trainer.load_from_checkpoint(path)\n{RESIZE}")
    assert leading(loading) == "resize-not-resizable"


@pytest.mark.parametrize(
    ("line", "origin"),
    [
        ("buffer = torch.from_numpy(frames)", "NumPy's buffer"),
        ("x = torch.empty(9, 0).pin_memory()", "pin_memory() builds its buffer"),
        ("state = load_file(path)", "mapped file"),
        ("rows = log.numpy()", "freezes its storage"),
        ("state = torch.load(path)", "the file reader's buffers"),
    ],
)
def test_a_visible_line_that_explains_the_frozen_buffer_is_named(line: str, origin: str):
    case = text_case(f">>> {line}\n>>> x.resize_(10)\n{RESIZE}")
    assert origin in said(case)


def test_a_lost_worker_of_ray_is_no_proof_of_host_memory():
    case = text_case(
        "The actor died unexpectedly before finishing this task. There are some potential root causes. (1) killed by OOM killer"
    )
    assert leading(case) == "undecided"
    assert "host memory" in verdict(case, "host-oom").summary


def test_a_cudnn_handle_that_cannot_be_made_is_likely_memory_and_never_certain():
    found = verdict(text_case("RuntimeError: cuDNN error: CUDNN_STATUS_NOT_INITIALIZED"), "cublas-handle-no-vram")  # fmt: skip
    assert (found.outcome, found.confidence) == (Outcome.CONFIRMED, Confidence.LOW)
    other = verdict(text_case("RuntimeError: cuDNN error: CUDNN_STATUS_EXECUTION_FAILED"), "cublas-handle-no-vram")  # fmt: skip
    assert other.outcome is Outcome.RULED_OUT


def test_what_nccl_was_refused_is_said_to_lie_outside_the_pool():
    case = text_case("Last error:\nFailed to CUDA calloc async 2432 bytes")
    words = verdict(case, "true-capacity").summary
    assert leading(case) == "undecided"
    assert "2432 bytes" in words
    assert "outside PyTorch's pool" in words


def _ends_in(line: str, *, function: str = "evaluate", **numbers: float) -> Case:
    """A full device, whose traceback ends in a line of the program's own."""
    frame = f'  File "run.py", line 8, in {function}\n    {line}\n'
    inside = '  File "/x/site-packages/torch/functional.py", line 3, in cat\n    return _cat(x)\n'
    oom = message(**{**FULL, **numbers}).oom
    assert oom is not None
    return text_case(frame + inside + oom.text)


@pytest.mark.parametrize(
    "line",
    [
        "scores = torch.cat((scores, logits), dim=0)",
        "scores = logits if scores is None else torch.cat((scores, logits), dim=0)",
        "all_embeddings.append(model(batch))",
        "preds['val'].append(torch.softmax(out, -1))",
        "epoch_loss += criterion(out, target)",
        "logits_host = nested_concat(logits_host, logits)",
    ],
)
def test_a_line_that_keeps_the_results_of_every_batch_is_a_leak(line: str):
    assert leading(_ends_in(line)) == "leak"


@pytest.mark.parametrize(
    ("line", "function"),
    [
        ("epoch_loss += criterion(out, target).item()", "train"),
        ("preds.append(out.cpu())", "evaluate"),
        ("features.append(self.stage(x))", "forward"),
        ("x = torch.cat([x, skip], dim=1)", "decode"),
        ("x = torch.cat([x, skip], 1)", "decode"),
        ("out = torch.cat([left, right], dim=0)", "evaluate"),
        ("hidden += residual", "block"),
    ],
)
def test_lines_that_keep_nothing_of_a_batch_are_no_leak(line: str, function: str):
    assert leading(_ends_in(line, function=function)) == "true-capacity"


def test_a_small_request_in_a_collector_is_not_the_whole_story():
    case = _ends_in("scores = torch.cat((scores, logits), dim=0)", requested=0.002, free=0.001)
    assert leading(case) == "true-capacity"
    assert verdict(case, "leak").severity is Severity.WARNING


@pytest.mark.parametrize(
    "line",
    [
        "key_layer = torch.cat((cache_k, key_layer), dim=0)",
        "k = torch.cat([prev_key, k], dim=1)",
        "value = torch.cat([past_key_values[1], value], dim=2)",
        "self.v_cache = torch.cat([self.v_cache, v], 2)",
    ],
)
def test_a_cat_onto_a_cache_is_growth_of_the_cache_whatever_its_model_calls_it(line: str):
    assert leading(_ends_in(line, function="attention")) == "kv-growth"


@pytest.mark.parametrize(
    "reason",
    [
        "slurmstepd: error: *** JOB 81 ON n3 CANCELLED AT 2026-01-01T00:00:00 DUE TO TIME LIMIT ***",
        "slurmstepd: error: *** STEP 81.0 ON n3 CANCELLED AT 2026-01-01T00:00:00 DUE TO PREEMPTION ***",
        "Warning  Unhealthy  kubelet  Liveness probe failed: connection refused",
        "The node was low on resource: ephemeral-storage.",
    ],
)
def test_a_kill_with_a_stated_reason_is_no_want_of_host_memory(reason: str):
    case = text_case(f"{reason}\n./job.sh: line 4:  99 Killed                  python train.py")
    assert verdict(case, "host-oom").outcome is Outcome.RULED_OUT
    assert leading(case) == "undecided"


def test_an_eviction_for_memory_is_the_hosts():
    case = text_case("The node was low on resource: memory. Container trainer was using 40Gi.")
    assert leading(case) == "host-oom"
