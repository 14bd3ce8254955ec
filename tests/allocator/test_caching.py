"""The allocator's own interface: worked examples of the real 2.14.1, errors with torch's numbers, and what it refuses."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from vramdoc.allocator import AllocatorConfig, CachingAllocator, ConfigError, Device, OutOfMemory
from vramdoc.allocator.errors import InternalAssert, UndefinedBehaviour, UnknownAddress, format_size
from vramdoc.allocator.flat_hash import FlatHash
from vramdoc.allocator.invariants import check
from vramdoc.allocator.releases import RULES
from vramdoc.allocator.sizes import allocation_size, round_size
from vramdoc.errors import UsageError

MIB = 1 << 20


def allocator(
    text: str = "", *, capacity: int = 1 << 30, release: str = "2.14"
) -> CachingAllocator:
    return CachingAllocator(AllocatorConfig.parse(text, release=release), Device(capacity))


def blocks(a: CachingAllocator) -> list[list[tuple[int, int, str]]]:
    letters = {"active_allocated": "A", "active_pending_free": "P", "inactive": "F"}
    return [
        [(b["size"], b["requested_size"], letters[b["state"]]) for b in s["blocks"]]
        for s in a.segments()
    ]


def test_small_and_large_pools_and_stale_requested_sizes() -> None:
    a = allocator()
    a.malloc(1)
    a.malloc(1_048_576)
    third = a.malloc(1_048_577)
    a.malloc(10_485_760)
    a.malloc(10_485_761)
    a.free(third)
    a.malloc(3_000_000)
    assert blocks(a) == [
        [(512, 1, "A"), (1_048_576, 1_048_576, "A"), (1_048_064, 0, "F")],
        [
            (1_049_088, 1_048_577, "F"),
            (10_485_760, 10_485_760, "A"),
            (3_000_320, 3_000_000, "A"),
            (6_436_352, 0, "F"),
        ],
        [(10_486_272, 10_485_761, "A"), (2_096_640, 0, "F")],
    ]
    check(a)


def test_a_remainder_of_exactly_one_mebibyte_stays_in_the_block() -> None:
    a = allocator()
    a.free(a.malloc(20_971_520))
    whole = a.malloc(19_922_944)
    assert blocks(a) == [[(20_971_520, 19_922_944, "A")]]
    a.free(whole)
    a.malloc(19_922_432)
    assert blocks(a) == [[(19_922_432, 19_922_432, "A"), (1_049_088, 19_922_944, "F")]]


def test_empty_cache_unmaps_whole_free_pages_only() -> None:
    a = allocator("expandable_segments:True")
    first, second, _third = (a.malloc(25 * MIB) for _ in range(3))
    a.free(second)
    a.empty_cache()
    assert a.memory_stats()["reserved_bytes.all.current"] == 80 * MIB
    a.free(first)
    a.empty_cache()
    assert a.memory_stats()["reserved_bytes.all.current"] == 40 * MIB
    assert blocks(a) == [[(10 * MIB, 0, "F"), (25 * MIB, 25 * MIB, "A"), (5 * MIB, 0, "F")]]


def test_a_full_device_is_flushed_and_asked_again() -> None:
    a = allocator(capacity=100 * MIB)
    first = a.malloc(40 * MIB)
    a.malloc(40 * MIB)
    a.free(first)
    a.malloc(50 * MIB)
    assert [e["action"] for e in a.trace()[-3:]] == ["segment_free", "segment_alloc", "alloc"]
    stats = a.memory_stats()
    assert (stats["num_alloc_retries"], stats["num_sync_all_streams"], stats["num_ooms"]) == (
        1,
        1,
        0,
    )


def test_a_use_on_oom_pool_serves_a_request_that_nothing_else_could() -> None:
    a = allocator()
    pool = a.create_pool(use_on_oom=True)
    with a.use_pool(pool):
        a.free(a.malloc(400 * MIB))
    a.malloc(500 * MIB)
    a.malloc(200 * MIB)
    assert a.trace()[-1]["pool_id"] == pool
    with pytest.raises(OutOfMemory) as caught:
        a.malloc(300 * MIB)
    error = caught.value
    assert (
        "900.00 MiB is allocated by PyTorch, with 200.00 MiB allocated in private pools"
        in error.message
    )
    assert (error.requested, error.tried, error.allocated, error.private_pools) == (
        300 * MIB,
        300 * MIB,
        900 * MIB,
        200 * MIB,
    )
    assert (error.total, error.free, error.unallocated, error.reserved, error.allowed) == (
        1 << 30,
        124 * MIB,
        0,
        900 * MIB,
        None,
    )


def test_a_block_used_on_another_stream_waits_for_it() -> None:
    a = allocator()
    address = a.malloc(3 * MIB)
    a.record_stream(address, 0x110)
    a.device.events_ready = False
    a.free(address)
    assert blocks(a)[0][0][2] == "P"
    a.malloc(3 * MIB)
    a.device.events_ready = True
    a.malloc(512)
    assert [e["action"] for e in a.trace()[-3:]] == ["free_completed", "segment_alloc", "alloc"]


def test_a_rejection_by_policy_counts_and_flushes_nothing() -> None:
    a = allocator("throw_on_cudamalloc_oom:True")
    a.set_allocator_settings("throw_on_cudamalloc_oom:True,per_process_memory_fraction:0.5")
    with pytest.raises(
        OutOfMemory, match=r"preemptively rejected .* Requested size: 600\.00 MiB"
    ) as caught:
        a.malloc(600 * MIB)
    assert caught.value.rejected
    assert caught.value.requested is None
    stats = a.memory_stats()
    assert (stats["num_oom_rejections"], stats["num_ooms"], stats["num_sync_all_streams"]) == (
        1,
        0,
        0,
    )
    assert a.trace() == []


@pytest.mark.parametrize(("release", "keys"), [("2.4", 130), ("2.12", 131), ("2.13", 131)])
def test_memory_stats_has_the_keys_of_its_release(release: str, keys: int) -> None:
    stats = allocator(release=release).memory_stats()
    assert list(stats) == sorted(stats)
    assert ("num_oom_rejections" in stats) is (release != "2.4")
    assert stats["max_split_size"] == -1
    assert len(stats) - ("num_oom_rejections" in stats) == 9 * 12 + 2 * 4 + 6, keys


def test_misuse_is_refused() -> None:
    a = allocator()
    address = a.malloc(512)
    a.free(address)
    with pytest.raises(UnknownAddress):
        a.free(address)
    with pytest.raises(UnknownAddress):
        a.record_stream(1234, 1)
    with pytest.raises(UsageError, match="Allowed range: 0~1"):
        a.set_per_process_memory_fraction(1.5)
    with pytest.raises(UsageError, match="NVIDIA's allocator"):
        allocator("backend:cudaMallocAsync")
    with pytest.raises(UsageError, match=r"no_split=True\) came with torch 2\.10"):
        allocator(release="2.9").create_pool(no_split=True)
    with pytest.raises(OutOfMemory, match="more than 1EB"):
        a.malloc(1 << 60)
    assert a.malloc(0) == 0
    a.free(0)


def test_a_config_is_read_again_for_the_allocators_release() -> None:
    config = AllocatorConfig.parse("max_split_size_mb:20", release="2.14")
    with pytest.raises(ConfigError, match=r"torch 2\.9 refuses it"):
        CachingAllocator(config, Device(1 << 30), release="2.9")
    assert CachingAllocator(config, Device(1 << 30), release="2.10.0").config.release == "2.10"


def test_what_the_real_allocator_does_not_survive_has_no_result() -> None:
    a = allocator("max_split_size_mb:100")
    a.free(a.malloc(90 * MIB))
    a.malloc(30 * MIB)
    a.set_allocator_settings("max_split_size_mb:50")
    with pytest.raises(UndefinedBehaviour, match="cudaFree inside a segment"):
        a.malloc(1000 * MIB)
    old = allocator(
        "expandable_segments:True,max_split_size_mb:40", capacity=200 * MIB, release="2.4"
    )
    old.free(old.malloc(100 * MIB))
    old.set_per_process_memory_fraction(0.6)
    with pytest.raises(InternalAssert, match="INTERNAL ASSERT FAILED"):
        old.malloc(50 * MIB)


@pytest.mark.parametrize("release", list(RULES))
def test_the_message_is_worded_as_by_the_release(release: str) -> None:
    a = allocator("", capacity=64 * MIB, release=release)
    a.set_per_process_memory_fraction(0.5)
    with pytest.raises(OutOfMemory) as caught:
        a.malloc(60 * MIB)
    text = str(caught.value)
    assert text.startswith(
        "CUDA out of memory. Tried to allocate 60.00 MiB. GPU 0 has a total capacity of 64.00 MiB of which "
    )
    assert ("32.00 MiB allowed; " in text) is (release != "2.4")
    assert ("try setting PYTORCH_ALLOC_CONF=" in text) is (release == "2.10")


@pytest.mark.parametrize(
    ("size", "text"),
    [
        (1024, "1024 bytes"),
        (1025, "1.00 KiB"),
        (1 << 20, "1024.00 KiB"),
        (1 << 30, "1024.00 MiB"),
        (5 << 40, "5120.00 GiB"),
    ],
)
def test_sizes_are_printed_as_torch_prints_them(size: int, text: str) -> None:
    assert format_size(size) == text


@given(size=st.integers(1, 1 << 40), division=st.sampled_from((0, 1, 2, 4, 8, 16)))
def test_rounding_never_shrinks_and_keeps_the_grain(size: int, division: int) -> None:
    rounded = round_size(size, (division,) * 16)
    assert rounded >= size
    assert rounded % 512 == 0
    assert round_size(rounded, (division,) * 16) == rounded
    assert allocation_size(rounded, 20 * MIB) >= rounded


@given(st.lists(st.tuples(st.booleans(), st.integers(0, 30))))
def test_the_hash_order_holds_exactly_what_was_put_in(steps: list[tuple[bool, int]]) -> None:
    table: FlatHash[int] = FlatHash(lambda key: key * 16)
    expected: set[int] = set()
    for add, key in steps:
        if add:
            table.add(key)
            expected.add(key)
        else:
            table.visit(lambda other, gone=key: other != gone)
            expected.discard(key)
    assert set(table) == expected
    assert len(table) == len(expected)
    assert all(key in table for key in expected)
