"""How a program ended, from its status and the kernel's counters."""

from pathlib import Path

import pytest

from vramdoc.errors import UnreadableInput
from vramdoc.record.ending import (
    OomKills,
    exit_of_exception,
    exit_of_status,
    qualified_name,
    read_oom_kills,
)
from vramdoc.record.manifest import ExitKind

QUIET = OomKills(group=0, host=4)


@pytest.mark.parametrize(
    ("kind", "name", "message"),
    [
        (ExitKind.OUT_OF_MEMORY, "torch.OutOfMemoryError", "CUDA out of memory. Tried ..."),
        (ExitKind.OUT_OF_MEMORY, "torch.cuda.OutOfMemoryError", "CUDA out of memory. Tried ..."),
        (ExitKind.OUT_OF_MEMORY, "RuntimeError", "CUDA error: out of memory"),
        (
            ExitKind.OUT_OF_MEMORY,
            "torch.OutOfMemoryError",
            "Allocation on device 0 would exceed allowed memory. (out of memory)",
        ),
        (
            ExitKind.CUBLAS,
            "RuntimeError",
            "CUDA error: CUBLAS_STATUS_ALLOC_FAILED when calling `cublasCreate(handle)`",
        ),
        (ExitKind.RESIZE, "RuntimeError", "Trying to resize storage that is not resizable"),
        (ExitKind.RESIZE, "RuntimeError", "Trying to resize storage without an allocator"),
        (ExitKind.EXCEPTION, "MemoryError", ""),
        (ExitKind.EXCEPTION, "ValueError", "resize me"),
        (ExitKind.INTERRUPTED, "KeyboardInterrupt", ""),
    ],
)
def test_an_exception_is_kept_under_what_it_is(kind: ExitKind, name: str, message: str) -> None:
    ending = exit_of_exception(name, message, "Traceback ...")
    assert (ending.kind, ending.message, ending.traceback) == (kind, message, "Traceback ...")


@pytest.mark.parametrize(
    ("status", "kind", "number"),
    [
        (0, ExitKind.SUCCESS, None),
        (3, ExitKind.EXCEPTION, None),
        (-11, ExitKind.SIGNAL, 11),
        (139, ExitKind.SIGNAL, 11),
        (-9, ExitKind.SIGNAL, 9),
        (137, ExitKind.SIGNAL, 9),
    ],
)
def test_a_status_tells_the_signal(status: int, kind: ExitKind, number: int | None) -> None:
    ending, _ = exit_of_status(status, QUIET, QUIET)
    assert (ending.kind, ending.signal, ending.code) == (kind, number, status)


@pytest.mark.parametrize(
    ("after", "kind", "words"),
    [
        (OomKills(group=1, host=5), ExitKind.HOST_OOM, "control group counted"),
        (OomKills(group=0, host=5), ExitKind.HOST_OOM, "probably"),
        (OomKills(group=None, host=5), ExitKind.HOST_OOM, "not certain"),
        (OomKills(group=0, host=4), ExitKind.SIGNAL, "something else sent SIGKILL"),
        (OomKills(group=None, host=None), ExitKind.SIGNAL, "cannot be told"),
    ],
)
def test_sigkill_is_the_oom_killers_only_where_a_counter_says_so(
    after: OomKills, kind: ExitKind, words: str
) -> None:
    ending, sentence = exit_of_status(-9, QUIET, after)
    assert ending.kind is kind
    assert words in sentence


def test_another_signal_is_never_the_oom_killers() -> None:
    ending, _ = exit_of_status(-11, QUIET, OomKills(group=9, host=9))
    assert ending.kind is ExitKind.SIGNAL


def kernel(root: Path, files: dict[str, str]) -> OomKills:
    for name, text in files.items():
        path = root / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
    return read_oom_kills(root / "proc", root / "cgroup")


def test_counters_of_a_version_2_group(tmp_path: Path) -> None:
    kills = kernel(
        tmp_path,
        {
            "proc/self/cgroup": "0::/user.slice/job\n",
            "cgroup/user.slice/job/memory.events": "low 0\noom 3\noom_kill 2\noom_group_kill 1\n",
            "proc/vmstat": "pgfault 1\noom_kill 7\n",
        },
    )
    assert kills == OomKills(group=2, host=7)


def test_counters_of_a_version_1_group(tmp_path: Path) -> None:
    kills = kernel(
        tmp_path,
        {
            "proc/self/cgroup": "4:memory:/box\n0::/\n",
            "cgroup/memory/box/memory.oom_control": "oom_kill_disable 0\nunder_oom 0\noom_kill 5\n",
        },
    )
    assert kills == OomKills(group=5, host=None)


def test_counters_inside_a_container(tmp_path: Path) -> None:
    files = {"proc/self/cgroup": "0::/\n", "cgroup/memory.events": "oom_kill 1\n"}
    assert kernel(tmp_path, files) == OomKills(group=1, host=None)


def test_no_kernel_counters_no_counts(tmp_path: Path) -> None:
    assert read_oom_kills(tmp_path, tmp_path) == OomKills(group=None, host=None)


def test_an_exception_is_named_as_a_traceback_names_it() -> None:
    assert qualified_name(ValueError) == "ValueError"
    assert qualified_name(UnreadableInput) == "vramdoc.errors.UnreadableInput"
