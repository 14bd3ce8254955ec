"""What a refused allocator setting meant: accepted by torch's own parser, and nothing that nobody wrote."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.diagnose.builders import text_case
from vramdoc.allocator.config import AllocatorConfig
from vramdoc.allocator.options import KEYS
from vramdoc.prescribe.corrected_setting import corrected_setting

ERROR = "RuntimeError: Unrecognized CachingAllocator option: "


@pytest.mark.parametrize(
    ("text", "corrected"),
    [
        (f"{ERROR}max_split_size_mb=256", "max_split_size_mb:256"),
        (f"PYTORCH_CUDA_ALLOC_CONF=max_split_size_mb=256,garbage_collection_threshold=0.7\n{ERROR}max_split_size_mb=256",
         "max_split_size_mb:256,garbage_collection_threshold:0.7"),
        (f"PYTORCH_CUDA_ALLOC_CONF=max_split_size:256\n{ERROR}max_split_size", "max_split_size_mb:256"),
        (f"PYTORCH_CUDA_ALLOC_CONF=expandable_segments:True,max_split_size_mb:64\ntorch==2.0.1\n{ERROR}expandable_segments",
         "max_split_size_mb:64"),
        (f"PYTORCH_CUDA_ALLOC_CONF=expandable_segments:True\ntorch==2.0.1\n{ERROR}expandable_segments", ""),
    ],
)  # fmt: skip
def test_what_was_meant_is_found(text: str, corrected: str):
    assert corrected_setting(text_case(text)) == corrected


@pytest.mark.parametrize(
    "text",
    [
        f"{ERROR}garbage_collection_threshold",  # the value stands nowhere
        "RuntimeError: CUDA error: out of memory",  # no setting was refused
    ],
)
def test_what_the_text_does_not_show_is_not_invented(text: str):
    assert corrected_setting(text_case(text)) is None


@given(
    key=st.sampled_from(sorted(KEYS)) | st.from_regex("[a-z_]{3,24}", fullmatch=True),
    separator=st.sampled_from(":="),
    value=st.sampled_from(("true", "True", "0.5", "64", "native", "oops")),
)
def test_what_is_proposed_is_accepted(key: str, separator: str, value: str):
    case = text_case(
        f"PYTORCH_CUDA_ALLOC_CONF={key}{separator}{value}\n{ERROR}{key}{separator}{value}"
    )
    text = corrected_setting(case)
    assert text is None or AllocatorConfig.parse(text).text == text
