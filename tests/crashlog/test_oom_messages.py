"""Any message made from random numbers, in any wording and inside any noise, is read back to those numbers."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.crashlog.messages import GIB, MIB, WORDINGS, Numbers, cached, format_size, sentences
from tests.crashlog.noise import NOISES
from vramdoc.crashlog import parse
from vramdoc.crashlog.sizes import read_size

SIZES = st.one_of(
    st.integers(0, 2048),
    st.integers(0, 2 * MIB),
    st.integers(0, 2 * GIB),
    st.integers(0, 300 * GIB),
)


@st.composite
def numbers(draw: st.DrawFn) -> Numbers:
    """Figures in any proportion: the reader must not care whether they make sense."""
    return Numbers(
        requested=draw(SIZES),
        total=draw(SIZES),
        free=draw(SIZES),
        allocated=draw(SIZES),
        unallocated=draw(SIZES),
        private_pools=draw(st.none() | SIZES),
        allowed=draw(st.none() | SIZES),
        process=draw(st.none() | SIZES),
        others=tuple(
            draw(st.lists(st.tuples(st.integers(1, 4_000_000), SIZES), max_size=4, unique=True))
        ),
        device=draw(st.integers(0, 7)),
    )


@given(size=st.integers(0, 1 << 50))
def test_a_printed_size_reads_back_within_half_its_last_digit(size: int):
    text = format_size(size)
    value, tolerance = read_size(text)
    assert abs(value - size) <= tolerance
    # torch prints a unit itself in the next smaller one: 1.00 GiB is read as that unit, whatever was above it.
    assert format_size(value) == text or value in {1024, MIB, GIB}


@pytest.mark.parametrize("wording", WORDINGS)
@settings(max_examples=60, deadline=None)
@given(n=numbers(), noise=st.sampled_from(sorted(NOISES)))
def test_every_figure_survives_wording_and_noise(wording: str, n: Numbers, noise: str):
    log = parse(NOISES[noise](WORDINGS[wording](n)))
    found = [i for i in log.incidents if "requested" in i.readings]
    assert len(found) == 1, [(i.kind, i.text) for i in log.incidents]
    values = found[0].readings
    expected = _expected(wording, n)
    for name, size in expected.items():
        assert format_size(size) == _flat(values[name].text), name
        assert abs(values[name].value - size) <= values[name].tolerance, name
    assert values["device"].value == n.device
    absent = {"allowed", "private_pools", "process"} - expected.keys()
    assert not {name for name in absent & values.keys() if isinstance(values[name].value, int)}


def _expected(wording: str, n: Numbers) -> dict[str, int]:
    expected = {
        "requested": n.requested,
        "total": n.total,
        "free": n.free,
        "allocated": n.allocated,
    }
    if wording == "async":
        return expected if n.allowed is None else expected | {"allowed": n.allowed}
    if wording == "1.0..1.3":
        return expected | {"cached": n.unallocated}
    if n.allowed is not None:
        expected["allowed"] = n.allowed
    if wording.startswith("1."):
        return expected | {"reserved": n.allocated + n.unallocated}
    expected["unallocated"] = n.unallocated
    if n.private_pools is not None:
        expected["private_pools"] = n.private_pools
    if n.process is not None:
        expected["process"] = n.process
    for number, (_pid, size) in enumerate(n.others, start=1):
        expected[f"process_{number}"] = size
    return expected


def _flat(text: str) -> str:
    return " ".join(text.split())


@pytest.mark.parametrize("wording", WORDINGS)
@given(cut=st.integers(1, 900))
@settings(max_examples=60, deadline=None)
def test_a_truncated_message_gives_only_whole_figures(wording: str, cut: int):
    n = Numbers(private_pools=64 * MIB, process=23 * GIB, allowed=22 * GIB)
    text = WORDINGS[wording](n)
    whole = parse(text).incidents[0].readings
    for incident in parse(text[:cut]).incidents:
        for name, reading in incident.readings.items():
            assert whole[name].value == reading.value or reading.text.endswith(("byte", "B"))


def test_spans_point_at_the_figures_in_the_original_text():
    text = "noise\n\x1b[31m[rank1]: " + sentences(Numbers(requested=777 * MIB)) + "\x1b[0m\n"
    log = parse(text)
    for reading in log.incidents[0].readings.values():
        assert text[reading.start : reading.end] == reading.text


def test_two_interleaved_ranks_stay_apart():
    first = sentences(Numbers(requested=300 * MIB, free=10 * MIB, device=1))
    second = sentences(Numbers(requested=300 * MIB, free=20 * MIB, device=0))
    words_1, words_2 = first.split(". "), second.split(". ")
    lines = []
    for part_1, part_2 in zip(words_1, words_2, strict=True):
        lines += [f"[rank1]: {part_1}. ", f"[rank0]: {part_2}. "]
    log = parse("\n".join(lines))
    shown = {(i.rank, i.readings["device"].value, i.readings["free"].value) for i in log.incidents}
    assert shown == {(1, 1, 10 * MIB), (0, 0, 20 * MIB)}


def test_two_to_the_64_bytes_is_no_figure():
    text = sentences(Numbers(process=(1 << 64) - 1))
    reading = parse(text).incidents[0].readings["process"]
    assert reading.value == reading.text == "17179869184.00 GiB"


def test_more_than_an_exabyte_is_a_request_without_a_size():
    (incident,) = parse(
        "RuntimeError: CUDA out of memory. Tried to allocate more than 1EB memory."
    ).incidents
    assert incident.kind == "cuda-oom"
    assert "overflow" in incident.readings


def test_the_policy_rejection_of_2_12_is_read():
    text = (
        "torch.OutOfMemoryError: CUDA out of memory. Allocation was preemptively rejected because it would exceed "
        "per_process_memory_fraction limit. Requested size: 96.00 MiB"
    )
    (incident,) = parse(text).incidents
    assert incident.readings["requested"].value == 96 * MIB
    assert incident.wording == "cuda-2.12.."


def test_mps_figures_are_divided_by_1024_whatever_their_unit_says():
    text = (
        "RuntimeError: MPS backend out of memory (MPS allocated: 2.00 GB, other allocations: 1.00 MB, max allowed: 3.00 GB). "
        "Tried to allocate 10.00 KB on private pool. Use PYTORCH_MPS_HIGH_WATERMARK_RATIO=0.0 to disable upper limit"
    )
    (incident,) = parse(text).incidents
    values = {name: reading.value for name, reading in incident.readings.items()}
    assert values == {
        "allocated": 2 * GIB,
        "other_allocations": MIB,
        "allowed": 3 * GIB,
        "requested": 10 << 10,
    }


@pytest.mark.parametrize(
    ("text", "since", "until"),
    [
        (cached(Numbers()), "1.0", "1.3"),
        (WORDINGS["1.10..2.0"](Numbers()), "1.10", "2.0"),
        (WORDINGS["2.1"](Numbers()), "2.1", "2.1"),
        (WORDINGS["2.2"](Numbers()), "2.2", None),
        (WORDINGS["2.2"](Numbers(private_pools=0)), "2.4", None),
        (WORDINGS["2.10"](Numbers()), "2.10", "2.10"),
        (WORDINGS["2.11"](Numbers()), "2.11", None),
    ],
)
def test_the_wording_dates_the_release(text: str, since: str, until: str | None):
    log = parse(text)
    assert (log.torch_at_least, log.torch_at_most) == (since, until)


def test_the_ceiling_of_intels_extension_is_a_message_of_its_backend():
    text = (
        "RuntimeError: Current platform can NOT allocate memory block with size larger than 4GB! Tried to allocate 5.50 GiB "
        "(GPU  1; 11.25 GiB total capacity; 0 bytes already allocated; 2.00 MiB reserved in total by PyTorch)"
    )
    (incident,) = parse(text).incidents
    assert incident.kind == "xpu-oom"
    values = {name: reading.value for name, reading in incident.readings.items()}
    assert values["requested"] == 11 << 29
    assert (values["total"], values["reserved"], values["device"]) == (45 << 28, 2 << 20, 1)
