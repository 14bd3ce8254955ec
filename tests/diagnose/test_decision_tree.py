"""The decision tree on the fifteen public messages of the failure-pattern catalogue (section 3.6), and on its borders."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.crashlog.messages import GIB, WORDINGS, async_backend, sentences
from tests.diagnose.builders import MIB, Numbers, gib, leading, message, said, text_case, verdict
from vramdoc.diagnose.engine import judge, primary
from vramdoc.diagnose.verdict import Confidence, Outcome, Severity
from vramdoc.evidence.case import Case

PUBLIC = {
    # figures in GiB, as the catalogue gives them -> the leading cause
    "E1 absurd request": (message(requested=130206, total=23.6, free=20, allocated=2, unallocated=0.5), "true-capacity"),
    "E2 lacks 7.8": (message(requested=19.68, total=24, free=11.88, allocated=11.44, unallocated=0.04), "true-capacity"),
    "E3 own pid hidden": (message(requested=0.25, total=47.54, free=0.03, allocated=47.14, unallocated=0.06, others=((3652628, 47.51),)), "true-capacity"),
    "E4 weak fragmentation": (message(requested=0.75, total=47.5, free=0.43, allocated=42.4, unallocated=3.24, process=46.5), "fragmentation"),
    "E5 edge of capacity": (message(requested=0.58, total=79.3, free=0.5, allocated=74.2, unallocated=0.18, others=((1, 0.48), (2, 78.33))), "true-capacity"),
    "E6 graphs hold more than slack": (message(requested=0.04, total=23.7, free=0.03, allocated=21.2, unallocated=0.84, private_pools=1.78, process=23.3), "graph-private-pool"),
    "E7 ten GiB outside PyTorch": (message(requested=1.27, total=79.3, free=0.11, allocated=67.7, unallocated=1.47, process=79.19), "non-pytorch-memory"),
    "E9 a pool that may not grow": (message(requested=0.64, total=24, free=22.96, allocated=0.5, unallocated=0.1), "undecided"),
    "E10 limit and fragmentation": (message(requested=3.98, total=31.5, free=16.3, allowed=17.51, allocated=6.74, unallocated=7.02), "memory-limit"),
    "E11 WSL oversubscribed": (message(requested=0.5, total=31.8, free=0, allocated=52.9, unallocated=0.3), "true-capacity"),
    "E12 Windows oversubscribed": (message(requested=20 / 1024, total=8, free=0, allocated=14.5, unallocated=0.1), "true-capacity"),
    "E13 weak at the edge": (message(old=True, requested=0.16, total=8, free=0, allocated=6.93, unallocated=0.29), "fragmentation"),
    "E14 sixteen GiB elsewhere": (message(old=True, requested=1.63, total=44.6, free=0.55, allocated=27.9, unallocated=0.03), "foreign-process"),
    "E15 rounding slack": (message(requested=14 / 1024, total=23.6, free=0.01, allocated=21.92, unallocated=16 / 1024), "true-capacity"),
}  # fmt: skip


@pytest.mark.parametrize("name", PUBLIC)
def test_public_messages_get_the_catalogues_answer(name: str):
    case, cause = PUBLIC[name]
    assert leading(case) == cause


def test_a_pool_that_counts_twice_is_not_trusted():
    case = text_case(
        "vLLM engine: "
        + message(requested=0.5, total=22.1, free=0.1, allocated=24.3, unallocated=0.1).oom.text
    )
    assert leading(case) == "undecided"
    assert "counts twice" in verdict(case, "true-capacity").summary


@pytest.mark.parametrize(
    ("requested", "free", "sure"),
    [(1.71, 1.04, False), (3.0, 1.04, True), (2.0, 1.6, True)],
    ids=["1.46 GiB of unknown owner would do", "they would not", "0.9 GiB are a context"],
)
def test_capacity_is_less_sure_where_memory_of_unknown_owner_would_serve(
    requested: float, free: float, sure: bool
):
    case = message(
        old=True, requested=requested, total=6, free=free, allocated=3.49, unallocated=0.01
    )
    assert leading(case) == "true-capacity"
    found = verdict(case, "true-capacity")
    assert found.confidence is (Confidence.HIGH if sure else Confidence.MEDIUM)
    assert ("closing them is enough" in said(case)) is not sure


def test_contributors_are_reported_beside_the_leading_cause():
    case = message(
        requested=1.74, total=23.57, free=0.59, allocated=20.21, unallocated=0.18, process=22.97
    )
    assert leading(case) == "true-capacity"
    contributor = verdict(case, "non-pytorch-memory")
    assert contributor.outcome is Outcome.CONFIRMED
    assert str(contributor.severity) == "warning"


def test_two_per_cent_of_idle_cache_is_rounding_slack():
    below = message(requested=0.2, total=24, free=0, allocated=22.6, unallocated=0.44)
    above = message(requested=0.2, total=24, free=0, allocated=22.4, unallocated=0.50)
    assert (leading(below), leading(above)) == ("true-capacity", "fragmentation")


def test_confidence_rises_with_the_idle_share():
    weak = message(requested=1, total=24, free=0, allocated=21.5, unallocated=1.2)
    plain = message(requested=1, total=24, free=0, allocated=15, unallocated=8)
    assert verdict(weak, "fragmentation").confidence is Confidence.LOW
    assert verdict(plain, "fragmentation").confidence is Confidence.MEDIUM


def test_equal_request_and_free_bytes_are_no_contradiction():
    case = message(
        old=True, requested=1.91, total=7.93, free=1.91, allocated=5.33, unallocated=0.03
    )
    assert leading(case) == "true-capacity"
    assert "equal within rounding" in said(case)


def test_live_bytes_and_a_request_beyond_the_device_are_capacity_whoever_holds_the_rest():
    figures = {"total": gib(16), "free": 0, "allocated": gib(9)}
    beyond = text_case(async_backend(Numbers(requested=gib(7.5), **figures)))
    within = text_case(async_backend(Numbers(requested=gib(6), **figures)))
    assert (leading(beyond), leading(within)) == ("true-capacity", "undecided")


def test_the_async_backend_without_room_is_capacity_and_with_unexplained_memory_undecided():
    full = text_case(
        async_backend(Numbers(requested=512 << 10, total=gib(15.99), free=0, allocated=gib(15.16)))
    )
    held = text_case(
        async_backend(
            Numbers(
                requested=gib(4.83),
                total=gib(22.2),
                free=11 * MIB,
                allocated=gib(16.08),
                allowed=gib(22.2),
            )
        )
    )
    assert (leading(full), leading(held)) == ("true-capacity", "undecided")
    assert "do not apply" in said(full)
    assert "2^64" in said(full)
    assert "not the cause" in " ".join(verdict(held, "true-capacity").notes)


def test_siblings_on_one_gpu_are_told_from_strangers():
    siblings = message(
        requested=0.03,
        total=79.1,
        free=0.01,
        allocated=19.6,
        unallocated=0.22,
        others=((71, 20.84), (72, 20.33), (73, 18.94), (74, 18.94)),
    )
    strangers = message(
        requested=2,
        total=24,
        free=0.1,
        allocated=3,
        unallocated=0.1,
        process=4,
        others=((991, 19.5),),
    )
    assert leading(siblings) == leading(strangers) == "foreign-process"
    assert "sibling ranks" in said(siblings)
    assert "sibling" not in said(strangers)


def test_a_capture_that_never_ended_leads_over_a_full_device():
    text = (
        "INFO Capturing the model for CUDA graphs.\n"
        + message(requested=0.5, total=24, free=0.1, allocated=22.5, unallocated=0.1).oom.text
    )
    assert leading(text_case(text)) == "graph-private-pool"
    assert (
        leading(
            text_case(
                "INFO Capturing CUDA graphs\nGraph capturing finished in 20 secs\n" + text[42:]
            )
        )
        == "true-capacity"
    )


@pytest.mark.parametrize(
    ("case", "words"),
    [
        (
            message(requested=1.16, total=14.58, free=0.79, allocated=13.29, unallocated=0.001),
            "smaller than the request",
        ),
        (message(requested=0.09, total=8, free=0, allocated=7.13, unallocated=0.124), "at best"),
        (
            message(requested=4, total=31.5, free=16, allowed=17.5, allocated=17, unallocated=0.1),
            "a memory limit refuses",
        ),
    ],
)
def test_torchs_own_hint_is_contradicted_where_it_does_not_apply(case, words: str):
    assert f"torch's hint (expandable_segments) does not apply: {words[:0]}" in said(case)
    assert words in said(case)


def test_the_hint_is_contradicted_on_windows_and_when_it_is_on_already():
    numbers = {"requested": 1, "total": 24, "free": 0, "allocated": 15, "unallocated": 8}
    windows = text_case(
        'File "C:\\venv\\lib\\site-packages\\torch\\x.py", line 1, in f\n'
        + message(**numbers).oom.text
    )
    on = text_case(
        "PYTORCH_CUDA_ALLOC_CONF=expandable_segments:True\n" + message(**numbers).oom.text
    )
    assert "ignored there" in said(windows)
    assert "is on already" in said(on)


@pytest.mark.parametrize("wording", WORDINGS)
def test_a_message_that_is_cut_off_before_its_figures_is_never_judged(wording: str):
    text = WORDINGS[wording](Numbers())
    end = text.rindex("iB")
    for length in range(0, end - 2, 7):
        case = text_case(text[:length] or "x")
        assert leading(case) == "undecided", text[:length]


def test_a_small_request_below_the_idle_cache_proves_nothing():
    small = message(requested=2 / 1024, total=11.91, free=0.001, allocated=10.89, unallocated=0.4)
    assert leading(small) == "true-capacity"


def test_free_bytes_just_above_the_request_are_not_called_short():
    case = message(
        requested=32 / 1024,
        total=4,
        free=41.56 / 1024,
        allocated=2.58,
        unallocated=0.002,
        process=3.44,
    )
    assert leading(case) == "true-capacity"
    assert "hardly more than the request" in said(case)


def test_contexts_of_sibling_ranks_on_a_full_device_are_named_beside_its_own_tensors():
    ranks = tuple((4001 + n, 0.53) for n in range(7))
    case = message(
        requested=0.002, total=79.19, free=0.002, allocated=73.58, unallocated=0.27, process=75.45, others=ranks
    )  # fmt: skip
    assert leading(case) == "true-capacity"
    found = verdict(case, "foreign-process")
    assert (found.outcome, found.severity) == (Outcome.CONFIRMED, Severity.WARNING)
    assert "3.71 GiB" in found.summary
    assert "sibling ranks" in " ".join(found.notes)


def test_a_desktops_few_hundred_megabytes_are_not_named():
    case = message(
        requested=0.02, total=24, free=0.01, allocated=22.5, unallocated=0.05, process=23.4, others=((9, 0.3),)
    )  # fmt: skip
    assert verdict(case, "foreign-process").outcome is Outcome.RULED_OUT


@pytest.mark.parametrize(
    ("backend", "tool"), [("HIP", "rocm-smi"), ("NPU", "npu-smi"), ("CUDA", "nvidia-smi")]
)
def test_the_program_that_lists_processes_is_the_devices_own(backend: str, tool: str):
    text = sentences(Numbers(total=64 * GIB, allocated=8 * GIB), backend=backend)
    assert tool in said(text_case(text))


def test_hidden_memory_is_someone_elses_even_when_this_process_is_listed():
    case = message(requested=1, total=24, free=0.1, allocated=3, unallocated=0.1, process=4)
    assert leading(case) == "foreign-process"


def test_half_of_a_small_card_outside_the_pool_is_someone_elses_and_a_context_on_it_is_not():
    held = {"requested": 0.3, "total": 4, "free": 0.02, "unallocated": 0.01}
    assert leading(message(old=True, allocated=1.6, **held)) == "foreign-process"
    tiny = message(old=True, requested=0.02, total=2, free=0.002, allocated=1.25, unallocated=0.01)
    assert leading(tiny) == "true-capacity"


def test_a_bare_error_inside_a_graph_capture_is_the_captures():
    frames = (
        '  File "/x/torch/cuda/graphs.py", line 84, in capture_end\n    super().capture_end()\n'
    )
    assert (
        leading(text_case(frames + "RuntimeError: CUDA error: out of memory"))
        == "graph-private-pool"
    )


def test_on_a_mac_what_pytorch_holds_is_told_from_what_others_hold():
    text = "RuntimeError: MPS backend out of memory (MPS allocated: {} GB, other allocations: {} GB, max allowed: 18.13 GB). Tried to allocate 1.00 GB on private pool."
    assert leading(text_case(text.format("17.68", "0.01"))) == "true-capacity"
    assert leading(text_case(text.format("3.00", "15.00"))) == "memory-limit"


def test_a_request_that_nearly_fits_the_card_is_not_called_absurd():
    case = message(requested=16, total=15.24, free=15.09, allocated=0, unallocated=0)
    assert leading(case) == "true-capacity"
    assert "alone exceeds" in said(case)


@given(
    requested=st.integers(1, 80 << 30), total=st.integers(1 << 30, 80 << 30), free=st.integers(0, 80 << 30),
    allocated=st.integers(0, 80 << 30), unallocated=st.integers(0, 80 << 30), private_pools=st.none() | st.integers(0, 8 << 30),
    allowed=st.none() | st.integers(0, 80 << 30), process=st.none() | st.integers(0, 80 << 30),
)  # fmt: skip
def test_any_figures_get_a_consistent_answer(**numbers):
    case = text_case(WORDINGS["2.2"](Numbers(**numbers)))
    verdicts = judge(case)
    assert not [v for v in verdicts if "This rule failed" in v.summary]
    chosen = primary(verdicts, case)
    if chosen != "undecided":
        (leader,) = [v for v in verdicts if v.id == chosen]
        assert leader.outcome is Outcome.CONFIRMED
        assert leader.evidence


def _failing_in(*frames: tuple[str, str, str]) -> Case:
    """A full device, with a traceback of (file, function, source)."""
    lines = [
        f'  File "{file}", line 7, in {function}\n    {source}\n'
        for file, function, source in frames
    ]
    full = message(requested=1, total=24, free=0.1, allocated=22.5, unallocated=0.1)
    return text_case("Traceback (most recent call last):\n" + "".join(lines) + full.oom.text)


@pytest.mark.parametrize(
    ("frame", "words"),
    [
        (("/x/site-packages/torch/distributed/fsdp/_state_dict_utils.py", "_full_post_state_dict_hook", "x.clone()"), "offload it to the CPU"),
        (("/x/site-packages/torch/optim/adamw.py", "_init_group", "state = torch.zeros_like(p)"), "in the first step only"),
        (("/x/site-packages/torch/optim/adam.py", "_multi_tensor_adam", "torch._foreach_sqrt(s)"), "foreach=False"),
        (("/x/site-packages/torch/nn/modules/module.py", "_apply", "module._apply(fn)"), "loaded or moved"),
        (("train.py", "validate_epoch", "out = model(x)"), "torch.no_grad()"),
    ],
)  # fmt: skip
def test_what_the_program_was_doing_is_said_from_its_traceback(frame, words: str):
    case = _failing_in(("train.py", "<module>", "main()"), frame)
    assert leading(case) == "true-capacity"
    assert words in said(case)


@pytest.mark.parametrize(
    "frames",
    [
        [("train.py", "main", "loss = model(x)")],
        [("train.py", "validate", "run()"), ("/x/site-packages/torch/utils/_contextlib.py", "decorate_context", "return func()")],
        [("/x/site-packages/transformers/trainer.py", "evaluate", "self.evaluation_loop()")],
        [("train.py", "evaluated_loss", "y = f(x)")],
    ],
)  # fmt: skip
def test_nothing_is_said_of_a_moment_that_the_traceback_does_not_show(frames):
    assert "It fails" not in said(_failing_in(*frames))


def test_a_validation_without_figures_is_named_too():
    frame = '  File "train.py", line 9, in validate\n    out = model(x)\n'
    case = text_case(frame + "RuntimeError: CUDA error: out of memory")
    assert leading(case) == "undecided"
    assert "torch.no_grad()" in " ".join(verdict(case, "true-capacity").notes)


@pytest.mark.parametrize("figures", [True, False])
def test_the_warm_up_of_vllms_sampler_is_named(figures: bool):
    wrapped = "RuntimeError: CUDA out of memory occurred when warming up sampler with 512 dummy requests. Please try lowering `max_num_seqs`"
    full = message(requested=1, total=24, free=0.1, allocated=22.5, unallocated=0.1).oom
    assert full is not None
    case = text_case(f"{full.text if figures else ''}\n{wrapped}")
    assert leading(case) == ("true-capacity" if figures else "undecided")
    assert "lower max_num_seqs" in " ".join(verdict(case, "true-capacity").notes)


DESKTOP = """
|    {device}   N/A  N/A      1047      G   /usr/lib/xorg/Xorg                {first}MiB |
|    {device}   N/A  N/A      5637      {kind}   /usr/bin/gnome-shell              261MiB |
"""


@pytest.mark.parametrize(
    ("table", "cause"),
    [
        (DESKTOP.format(device=0, first=403, kind="G"), "foreign-process"),
        (DESKTOP.format(device=1, first=403, kind="G"), "true-capacity"),
        (DESKTOP.format(device=0, first=3, kind="C"), "true-capacity"),
    ],
    ids=["a desktop", "a desktop on another GPU", "a program that computes may be this one"],
)
def test_a_desktop_in_a_table_beside_the_message_is_someone_else(table: str, cause: str):
    oom = message(old=True, requested=5.4, total=7.8, free=5, allocated=0.95, unallocated=0.02).oom
    assert oom is not None
    case = text_case(f"{oom.text}\n\nnvidia-smi says:\n{table}")
    assert leading(case) == cause


def test_figures_that_contradict_each_other_decide_nothing():
    case = text_case(
        "RuntimeError: CUDA out of memory. Tried to allocate 2.00 GiB (GPU 0; 16.00 GiB total capacity; 12.00 GiB already allocated; "
        "0 bytes free; 2.00 GiB reserved in total by PyTorch)"
    )
    assert leading(case) == "undecided"
    assert "contradict" in verdict(case, "true-capacity").summary
