"""One child, to its end: nothing lost that was whole, no process left behind."""

import os
import signal
import sys
import time
from pathlib import Path

import pytest

from vramdoc.record import child_process
from vramdoc.record.child_process import BoundedLog, run_child

pytestmark = pytest.mark.skipif(sys.platform == "win32", reason="signals and process groups")


class Run:
    """A child made of Python source, its reports and its log."""

    def __init__(self, tmp_path: Path) -> None:
        self.path = tmp_path / "output.log"
        self.reports: list[bytes] = []

    def __call__(self, source: str, timeout_s: float | None = 60) -> int | None:
        handle = os.open(self.path, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)
        self.log = BoundedLog(handle, head=10_000, tail=2_000)
        try:
            return run_child(
                [sys.executable, "-c", source],
                environment=os.environ,
                request=b"the request\n",
                log=self.log,
                report=self.reports.append,
                timeout_s=timeout_s,
            )
        finally:
            self.log.close()
            os.close(handle)


@pytest.fixture
def run(tmp_path: Path) -> Run:
    return Run(tmp_path)


def is_alive(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"


def gone(pid: int) -> bool:
    """Within a few seconds: a killed orphan is reaped by somebody else."""
    return any(not is_alive(pid) or time.sleep(0.05) for _ in range(100))


def test_request_in_reports_and_output_out(run: Run) -> None:
    status = run("import sys; print(input()); print('seen', file=sys.stderr); sys.exit(3)")
    assert (status, run.reports) == (3, [b"the request\n"])
    assert run.path.read_text() == "seen\n"


def test_a_child_that_reads_nothing_is_not_an_error(run: Run) -> None:
    assert run("import os; os.close(0)") == 0


def test_a_flood_is_kept_at_both_ends(run: Run) -> None:
    assert run("import sys; sys.stderr.write('first ' + 'x' * 50_000_000 + ' last')") == 0
    text = run.path.read_text()
    assert text.startswith("first xxx")
    assert text.endswith("xxx last")
    assert "bytes of output were left out here" in text
    assert len(text) < 200_000


@pytest.mark.parametrize("sizes", [(5,), (12, 3), (10, 1, 1, 1, 1), (40, 40), (9, 2, 30, 1)])
def test_a_bounded_log_says_how_much_it_left_out(tmp_path: Path, sizes: tuple[int, ...]) -> None:
    with (tmp_path / "log").open("wb", buffering=0) as file:
        log = BoundedLog(file.fileno(), head=10, tail=10)
        text = bytes(range(65, 91)) * 4
        position = 0
        for size in sizes:
            log.write(text[position : position + size])
            position += size
        log.close()
    head, _, tail = (tmp_path / "log").read_bytes().partition(b"\n[")
    left_out, _, tail = tail.rpartition(b" bytes of output were left out here]\n")
    assert text[:position].startswith(head)
    if left_out:
        assert len(head) + int(left_out) + len(tail) == position
        assert text[:position].endswith(tail)
        assert len(tail) >= 10
    else:
        assert head == text[:position]


def test_a_full_disk_does_not_stop_the_child(run: Run) -> None:
    run.path.symlink_to("/dev/full")
    assert run("import sys; sys.stderr.write('x' * 1_000_000); sys.exit(5)") == 5
    assert run.log.problem is not None


def test_a_child_out_of_time_is_asked_and_then_made_to_end(run: Run, monkeypatch) -> None:
    monkeypatch.setattr(child_process, "GRACE_S", 0.3)
    source = """
import os, signal, subprocess, sys, time
signal.signal(signal.SIGTERM, signal.SIG_IGN)
below = subprocess.Popen([sys.executable, "-c", "import signal, time; signal.signal(15, signal.SIG_IGN); time.sleep(99)"])
print(os.getpid(), below.pid, flush=True)
time.sleep(99)
"""
    assert run(source, timeout_s=1.5) is None
    pids = [int(pid) for pid in run.reports[0].split()]
    assert all(gone(pid) for pid in pids)


def test_what_a_finished_child_left_running_ends_too(run: Run) -> None:
    source = """
import subprocess, sys
print(subprocess.Popen([sys.executable, "-c", "import time; time.sleep(99)"]).pid, flush=True)
"""
    assert run(source) == 0
    assert gone(int(run.reports[0]))


def test_an_exception_here_ends_the_child(run: Run, monkeypatch) -> None:
    monkeypatch.setattr(child_process, "GRACE_S", 0.3)
    # A shell starts its background jobs with SIGINT ignored, and Python then leaves it so.
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    run.reports = Interrupting(run.reports)
    try:
        with pytest.raises(KeyboardInterrupt):
            run("import os, time; print(os.getpid(), flush=True); time.sleep(99)")
    finally:
        signal.signal(signal.SIGINT, before)
    assert gone(int(run.reports[0]))


class Interrupting(list):
    """A person presses Ctrl-C when the first report comes."""

    def append(self, line: bytes) -> None:
        super().append(line)
        os.kill(os.getpid(), signal.SIGINT)
