"""A recorded transformer run replayed under twelve configs, and the same work truly run again under each: equal to the byte."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from vramdoc.errors import VramdocError
from vramdoc.replay.compare import replay
from vramdoc.replay.replayable import DeviceFacts, fidelity, replayable
from vramdoc.snapshot.reader import read_snapshot
from vramdoc.virtual_gpu.catalogue import find_gpu
from vramdoc.virtual_gpu.environment import virtual_environment
from vramdoc.virtual_gpu.torch_build import find_torch

pytestmark = pytest.mark.virtual_gpu
RUN = Path(__file__).with_name("transformer_run.py")
CONFIGS = (
    "",
    "expandable_segments:True",
    "expandable_segments:True,roundup_power2_divisions:4",
    "expandable_segments:True,large_segment_size_mb:64",
    "max_split_size_mb:20",
    "max_split_size_mb:64",
    "max_split_size_mb:32,max_non_split_rounding_mb:60",
    "roundup_power2_divisions:2",
    "roundup_power2_divisions:[1:16,4:8,16:4,>:2]",
    "large_segment_size_mb:40",
    "large_segment_size_mb:128,roundup_power2_divisions:8",
    "garbage_collection_threshold:0.3,per_process_memory_fraction:0.2",
)


def test_replayed_peaks_equal_those_of_true_reruns(tmp_path: Path) -> None:
    pytest.importorskip("transformers")
    try:
        build = find_torch()
    except VramdocError as error:
        pytest.skip(f"no torch that the virtual GPU can serve: {error}")
    gpu = find_gpu("8GiB")
    dump = tmp_path / "snapshot.pickle"
    asked = [["", str(dump)], *([config, None] for config in CONFIGS)]
    done = subprocess.run(
        [sys.executable, str(RUN)],
        input="".join(json.dumps(line) + "\n" for line in asked),
        env={**os.environ, **virtual_environment(gpu, build)},
        capture_output=True,
        text=True,
        check=True,
    )
    replies = [json.loads(line) for line in done.stdout.splitlines()]
    assert not any("broken" in reply for reply in replies), replies
    recording = replayable(
        read_snapshot(dump),
        release=build.version,
        facts=DeviceFacts(total=gpu.total_bytes, in_use=gpu.context_bytes),
    )
    faith = fidelity(recording)
    assert faith.exact, faith.sentence()
    for config, stats in zip(CONFIGS, replies[1:], strict=True):
        replayed = replay(recording, config, fidelity=faith)
        assert not replayed.refused
        expected = (
            stats["reserved_bytes.all.peak"],
            stats["active_bytes.all.peak"],
            stats["num_device_alloc"],
            stats["num_device_free"],
            stats["num_alloc_retries"],
        )
        assert (
            replayed.reserved_peak,
            replayed.active_peak,
            replayed.device_alloc,
            replayed.device_free,
            replayed.retries,
        ) == expected, config
    assert len({reply["reserved_bytes.all.peak"] for reply in replies[1:]}) > 5, (
        "the configs should make a difference"
    )
