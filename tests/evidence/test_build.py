"""A case is built from whatever there is: a snapshot, a recording of one process or of several, a crash text."""

import io
import pickle
import subprocess
import sys

from tests.evidence.programs import MIB, played
from tests.snapshot.plain import block, event, segment, snapshot
from vramdoc.evidence.build import (
    NO_TRACE,
    case_from_crash_text,
    case_from_recording,
    case_from_snapshot,
)
from vramdoc.facts import Source
from vramdoc.record.manifest import DeviceInfo, Exit, ExitKind, Manifest, Phase
from vramdoc.record.recording import open_recording, write_manifest

OOM_TEXT = (
    "torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 200.00 MiB. GPU 0 has a total capacity of 1.00 GiB of "
    "which 12.00 MiB is free. Of the allocated memory 700.00 MiB is allocated by PyTorch, and 300.00 MiB is reserved by "
    "PyTorch but unallocated. If reserved but unallocated memory is large try setting ..."
)


def manifest(**changes):
    return Manifest(
        **{
            "created": "2026-12-01T00:00:00Z", "tool_version": "0", "versions": {"torch": "2.14.1"},
            "platform": {"system": "Linux"}, "alloc_conf": "", "exit": Exit(kind=ExitKind.SUCCESS),
            "device": DeviceInfo(kind="virtual", name="NVIDIA L4", key="l4", total_bytes=1 << 30,
                                 compute_capability="8.9", multiprocessors=58),
            **changes,
        }
    )  # fmt: skip


def write_recording(folder, *, plain=None, oom=None, **changes):
    folder.mkdir(parents=True)
    write_manifest(folder, manifest(**changes))
    for name, data in (("snapshot.pickle", plain), ("snapshot-oom.pickle", oom)):
        if data is not None:
            (folder / name).write_bytes(data if isinstance(data, bytes) else pickle.dumps(data))
    return open_recording(folder)


def plain_of(seed, **options):
    allocator, _ = played(seed, **options)
    return allocator.snapshot()


def oom_at(size):
    return {"action": "oom", "device_free": 12 * MIB, "size": size, "stream": 0, "time_us": 9}


def test_a_snapshot_alone_is_measured_and_says_what_it_cannot_tell(tmp_path):
    path = tmp_path / "dump.pickle"
    path.write_bytes(pickle.dumps(plain_of(1)))
    case = case_from_snapshot(path)
    assert (case.kind, case.name) == ("snapshot", "dump.pickle")
    assert case.usage.source is Source.READ
    assert case.fragmentation.reserved_bytes == case.usage.end.reserved
    assert "which GPU" in case.missing[0]


def test_a_snapshot_without_events_says_so(tmp_path):
    path = tmp_path / "dump.pickle"
    path.write_bytes(pickle.dumps(snapshot([segment(0, [block(0, 512)])])))
    case = case_from_snapshot(path)
    assert NO_TRACE in case.missing
    assert case.usage.peak == case.usage.end
    assert "no trace events" in case.usage.caveat


def test_figures_of_a_recording_carry_the_device_they_were_measured_on(tmp_path):
    recording = write_recording(tmp_path / "r", plain=plain_of(1))
    assert case_from_recording(recording).usage.source is Source.VIRTUAL_GPU


def test_torchs_own_peaks_count_where_the_trace_is_too_short(tmp_path):
    cut = plain_of(1)
    cut["device_traces"] = [cut["device_traces"][0][-10:]]
    recording = write_recording(
        tmp_path / "r", plain=cut,
        statistics={"active_bytes.all.peak": 1 << 40, "num_device_alloc": 77},
        phases=[Phase(name="load", started_us=0, reserved_peak_bytes=1 << 41)],
    )  # fmt: skip
    usage = case_from_recording(recording).usage
    assert (usage.peak.active, usage.peak.reserved, usage.device_alloc_calls) == (
        1 << 40,
        1 << 41,
        77,
    )
    assert usage.complete


def test_a_failure_is_judged_by_the_snapshot_of_its_moment_and_by_its_message(tmp_path):
    at_failure = snapshot(
        [segment(0, [block(0, 700 * MIB), block(700 * MIB, 300 * MIB, "inactive")])],
        [oom_at(200 * MIB)],
    )
    recording = write_recording(
        tmp_path / "r", plain=snapshot([]), oom=at_failure,
        exit=Exit(kind=ExitKind.OUT_OF_MEMORY, message=OOM_TEXT, traceback=OOM_TEXT),
    )  # fmt: skip
    case = case_from_recording(recording)
    assert case.usage.end.reserved == 1000 * MIB
    assert case.oom.requested.value == 200 * MIB
    assert case.oom.largest_hole.value == 300 * MIB
    assert case.oom.largest_hole.source is Source.VIRTUAL_GPU
    assert case.oom.total.value == 1 << 30
    assert case.oom.text.startswith("CUDA out of memory")


def test_a_broken_snapshot_in_a_recording_is_missing_and_no_error(tmp_path):
    recording = write_recording(tmp_path / "r", plain=b"\x80\x04]")
    case = case_from_recording(recording)
    assert case.snapshot is None
    assert any(
        "snapshot.pickle of the recording cannot be read" in reason for reason in case.missing
    )


def test_of_several_ranks_the_one_that_stands_out_is_the_case(tmp_path):
    def rank(leaked):
        line = {"filename": "/p/q/r/train.py", "line": 31, "name": "log"}
        blocks = [
            block(0, 100 * MIB),
            *([block(100 * MIB, leaked, frames=[line])] if leaked else []),
        ]
        return snapshot(
            [segment(0, blocks)],
            [event("alloc", 100 * MIB, leaked, frames=[line])] if leaked else [],
        )

    recording = write_recording(tmp_path / "r", plain=rank(0), rank=0)
    for number in (1, 2):
        write_recording(
            tmp_path / "r" / f"rank-{number}",
            plain=rank(60 * MIB if number == 2 else 0),
            rank=number,
        )
    case = case_from_recording(recording)
    assert case.ranks.outlier.rank == 2
    assert case.ranks.outlier.over_bytes == 60 * MIB
    assert str(case.ranks.outlier.sites[0].site) == "train.py:31 (log)"
    assert case.manifest.rank == 2
    assert case.name == "r"


def test_a_crash_text_is_read_from_a_stream():
    case = case_from_crash_text(io.BytesIO(OOM_TEXT.encode()), name="-")
    assert (case.kind, case.name) == ("crash-text", "-")
    assert case.oom.requested.value == 200 * MIB


def test_a_crash_text_loads_no_numpy():
    code = (
        "import io, sys; from vramdoc.evidence.build import case_from_crash_text; "
        f"case_from_crash_text(io.BytesIO({OOM_TEXT.encode()!r}), name='-'); print('numpy' in sys.modules)"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout == "False\n"
