"""``explain``: pages made from rules and catalogue, and a settings string read as its release reads it."""

from __future__ import annotations

import importlib.util
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from vramdoc.allocator.config import AllocatorConfig, ConfigError
from vramdoc.allocator.options import KEYS
from vramdoc.allocator.releases import RULES as RELEASES
from vramdoc.diagnose.rules import RULES
from vramdoc.errors import UsageError
from vramdoc.prescribe.catalogue import CATALOGUE
from vramdoc.prescribe.explain import contents_page, explain
from vramdoc.prescribe.explain_setting import PLATFORMS, read_options

REPOSITORY = Path(__file__).resolve().parents[2]


def statuses(text: str, release: str = "2.14", platform: str = "linux") -> dict[str, str]:
    return {r.key: str(r.status) for r in read_options(text, release=release, platform=platform)}


def test_the_contents_name_everything_that_has_a_page():
    text = contents_page().render()
    for name in (*(rule.id for rule in RULES), *CATALOGUE, *KEYS):
        assert name in text
        assert explain(name).to_markdown()


def test_the_pages_of_the_findings_are_current():
    path = REPOSITORY / "docs" / "generate_findings.py"
    spec = importlib.util.spec_from_file_location("generate_findings", path)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    assert module.stale() == []


@pytest.mark.parametrize(
    ("text", "release", "platform", "expected"),
    [
        ("expandable_segments:True", "2.14", "linux", {"expandable_segments": "accepted"}),
        ("expandable_segments:True", "2.9", "windows", {"expandable_segments": "ignored"}),
        ("expandable_segments:True", "2.14", "windows", {"expandable_segments": "uncertain"}),
        ("expandable_segments:True", "2.11", "rocm", {"expandable_segments": "ignored"}),
        ("expandable_segments:True", "2.12", "rocm", {"expandable_segments": "accepted"}),
        ("expandable_segments:true", "2.10", "linux", {"expandable_segments": "fatal"}),
        ("expandable_segments:True,max_split_size_mb:128", "2.4", "linux", {"expandable_segments": "accepted", "max_split_size_mb": "conflict"}),
        ("expandable_segments:True,max_split_size_mb:128", "2.9", "linux", {"expandable_segments": "accepted", "max_split_size_mb": "ignored"}),
        ("expandable_segments:True,max_split_size_mb:128", "2.9", "windows", {"expandable_segments": "ignored", "max_split_size_mb": "accepted"}),
        ("garbage_collection_threshold:0.8", "2.9", "linux", {"garbage_collection_threshold": "ignored"}),
        ("garbage_collection_threshold:0.8,per_process_memory_fraction:0.9", "2.10", "linux", {"garbage_collection_threshold": "accepted", "per_process_memory_fraction": "accepted"}),
        ("per_process_memory_fraction:0.9", "2.9", "linux", {"per_process_memory_fraction": "fatal"}),
        ("backend:cudaMallocAsync,expandable_segments:True", "2.14", "linux", {"backend": "accepted", "expandable_segments": "ignored"}),
        ("max_split_size:64", "2.14", "linux", {"max_split_size": "fatal"}),
        ("max_split_size_mb:10", "2.14", "linux", {"max_split_size_mb": "fatal"}),
        ("max_split_size_mb:128", "2.14", "macos", {"max_split_size_mb": "ignored"}),
    ],
)  # fmt: skip
def test_an_option_is_accepted_ignored_in_conflict_or_fatal(text, release, platform, expected):
    assert statuses(text, release, platform) == expected


def test_the_page_says_where_a_broken_string_ends():
    page = explain("max_split_size_mb=512", release="2.12")
    assert page.data["accepted"] is False
    assert page.data["error"]["aborts_at_import"] is True
    assert "Write max_split_size_mb:512" in page.render()


def test_the_trap_of_2_9_is_named():
    assert "following the warning loses the setting" in " ".join(
        explain("expandable_segments:True", release="2.9").render().split()
    )
    assert "loses" not in explain("expandable_segments:True", release="2.10").render()


@given(
    keys=st.lists(st.sampled_from(sorted(KEYS)), min_size=1, max_size=3, unique=True),
    values=st.lists(
        st.sampled_from(["True", "False", "64", "0.5", "8", "native", "x", ""]),
        min_size=3,
        max_size=3,
    ),
    release=st.sampled_from(sorted(RELEASES)),
    platform=st.sampled_from(PLATFORMS),
)
def test_an_option_is_fatal_exactly_when_the_simulated_parser_refuses_it(
    keys, values, release, platform
):
    text = ",".join(f"{key}:{value}" for key, value in zip(keys, values, strict=False))
    page = explain(text, release=release, platform=platform)
    for reading in read_options(text, release=release, platform=platform):
        entry = f"{reading.key}:{reading.value}"
        assert (str(reading.status) == "fatal") == (refused(entry, release) is not None)
    reason = refused(text, release)
    assert page.data["accepted"] is (reason is None)
    assert reason is None or page.data["error"]["reason"] == reason


def refused(text: str, release: str) -> str | None:
    """Why the simulated parser refuses ``text``."""
    try:
        AllocatorConfig.parse(text, release=release)
    except ConfigError as error:
        return error.reason
    return None


@pytest.mark.parametrize(
    ("subject", "release", "platform", "hint"),
    [
        ("nonsense", None, None, "--list"),
        ("expandable_segments:True", "1.13", None, "nearest"),
        ("expandable_segments:True", None, "amiga", "linux"),
    ],
)
def test_what_cannot_be_explained_is_one_line_with_a_hint(subject, release, platform, hint):
    with pytest.raises(UsageError) as caught:
        explain(subject, release=release, platform=platform)
    assert hint in caught.value.hint
