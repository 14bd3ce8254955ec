"""Config strings: the shipped binaries' own answers, what a new setting keeps, and reading any text without breaking."""

from __future__ import annotations

import json
from itertools import pairwise
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from vramdoc.allocator.config import UNLIMITED, AllocatorConfig, ConfigError
from vramdoc.allocator.options import KEYS, OPTIONS, keys_of
from vramdoc.allocator.releases import RULES, nearest, rules_for
from vramdoc.errors import UsageError

MIB = 1 << 20
ANSWERS = [
    json.loads(line)
    for line in (Path(__file__).parent / "data" / "config-answers.jsonl").read_text().splitlines()
]


def refusal(release: str, moment: str, text: str) -> list[str] | None:
    """What the parser refuses ``text`` with, in the form of the recorded answers."""
    try:
        if moment == "start":
            AllocatorConfig.parse(text, release=release)
        else:
            AllocatorConfig.parse("", release=release).reset(text)
    except ConfigError as error:
        return ["abort", ""] if error.aborts else [error.exception, error.reason.strip()]
    return None


@pytest.mark.parametrize("release", sorted({answer[0] for answer in ANSWERS}))
def test_every_string_is_taken_or_refused_as_the_binary_did(release: str) -> None:
    wrong = [
        (moment, text, refusal(release, moment, text), expected)
        for of, moment, text, expected in ANSWERS
        if of == release and refusal(release, moment, text) != expected
    ]
    assert not wrong


def test_an_error_carries_torchs_class_and_text_and_names_the_release() -> None:
    with pytest.raises(
        ConfigError, match=r"torch 2\.14 refuses it: ValueError: Unrecognized key 'bogus'"
    ) as caught:
        AllocatorConfig.parse("bogus:1", release="2.14.1")
    assert caught.value.exception == "ValueError"
    assert caught.value.reason == "Unrecognized key 'bogus' in CUDA allocator config."


def test_a_new_setting_resets_some_options_and_keeps_the_others() -> None:
    text = "expandable_segments:True,max_split_size_mb:64,garbage_collection_threshold:0.5,max_non_split_rounding_mb:60"
    before = AllocatorConfig.parse(text, release="2.10")
    after = before.reset("")
    assert (
        after.expandable_segments,
        after.max_split_size,
        after.garbage_collection_threshold,
    ) == (True, UNLIMITED, 0.0)
    assert after.max_non_split_rounding == 60 * MIB
    newer = AllocatorConfig.parse(text, release="2.11").reset("large_segment_size_mb:40")
    assert (newer.max_non_split_rounding, newer.large_segment_size) == (40 * MIB, 40 * MIB)


def test_what_was_read_before_the_bad_part_is_in_force_after_the_error() -> None:
    with pytest.raises(ConfigError) as caught:
        AllocatorConfig.parse("", release="2.4").reset(
            "max_split_size_mb:32,max_non_split_rounding_mb:60"
        )
    assert caught.value.partial.max_split_size == 32 * MIB


@pytest.mark.parametrize(
    ("release", "expected"),
    [("2.9", (1,) * 8 + (1, 2, 8, 8, 8, 8, 8, 8)), ("2.10", (1,) * 8 + (1, 2, 4, 8, 8, 8, 8, 8))],
)
def test_the_tail_of_a_roundup_list_spares_its_last_boundary_from_2_10_on(
    release: str, expected: tuple[int, ...]
) -> None:
    config = AllocatorConfig.parse(
        "roundup_power2_divisions:[256:1,512:2,1024:4,>:8]", release=release
    )
    assert config.roundup_power2_divisions == expected


def test_cuda_malloc_async_is_read_and_warns_about_what_it_ignores() -> None:
    config = AllocatorConfig.parse("backend:cudaMallocAsync,max_split_size_mb:64", release="2.9")
    assert config.backend == "cudaMallocAsync"
    assert "ignores max_split_size_mb" in config.warnings[0]


@given(
    text=st.text(alphabet="abkmpsegx_:,[]>0159.- \tTrueFalse", max_size=60),
    release=st.sampled_from(sorted(RULES)),
)
def test_any_text_is_either_read_or_refused_with_a_reason(text: str, release: str) -> None:
    answer = refusal(release, "start", text)
    assert (
        answer is None
        or answer == ["abort", ""]
        or (answer[0] in {"ValueError", "RuntimeError"} and answer[1])
    )


def test_options_grow_from_release_to_release() -> None:
    accepted = [keys_of(release) for release in RULES]
    assert all(older <= newer for older, newer in pairwise(accepted))
    assert accepted[-1] == frozenset(KEYS)
    assert all(option.effect and option.valid for option in OPTIONS.values())


def test_an_unknown_release_is_refused_and_the_nearest_is_named() -> None:
    with pytest.raises(UsageError, match=r"2\.99 is not simulated"):
        rules_for("2.99")
    assert (nearest("2.99.1"), nearest("1.13"), nearest("2.14.1+cu130")) == ("2.15", "2.4", "2.14")
