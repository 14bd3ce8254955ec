"""Any script, recorded on a virtual GPU: however it ends, what it did is there, and it ended as it would have."""

import os
import pickle
import re
import signal
import sys
import time
from pathlib import Path

import pytest

from vramdoc.record.recording import ExitKind, Recording
from vramdoc.snapshot.reader import read_snapshot

pytestmark = pytest.mark.virtual_gpu

OUT_OF_MEMORY_AT_STEP_40 = """
import torch
kept = []
for step in range(100):
    with torch.profiler.record_function("step"):
        scratch = torch.empty(100 << 20, dtype=torch.uint8, device="cuda")
        kept.append(torch.empty(190 << 20, dtype=torch.uint8, device="cuda"))  # the leak
        print(step, flush=True)
"""


def lines_alive(path: Path) -> set[int]:
    """Lines of the program's own file that hold memory in a snapshot."""
    return {
        frame.line
        for segment in read_snapshot(path).segments
        for block in segment.blocks
        if block.state == "active_allocated"
        for frame in block.frames
        if frame.filename.endswith("train.py")
    }


def test_a_training_script_that_runs_out_of_memory(record) -> None:
    seen = record.run(OUT_OF_MEMORY_AT_STEP_40)
    manifest = seen.recording.manifest
    assert seen.code == 1
    assert seen.out.split()[-1] == "39"
    assert "torch.OutOfMemoryError" in seen.err
    assert (manifest.exit.kind, manifest.exit.code) == (ExitKind.OUT_OF_MEMORY, 1)
    assert manifest.exit.exception_type == "torch.OutOfMemoryError"
    assert "train.py" in manifest.exit.traceback
    assert manifest.device.kind == "virtual"
    assert manifest.statistics["num_ooms"] == 1
    # The first one began before the GPU was used, so before the history.
    assert [phase.name for phase in manifest.phases] == ["step"] * 40
    assert manifest.target == {"kind": "script", "name": "train.py"}
    # At the error, before the exception unwound: the leak is there.
    assert 7 in lines_alive(seen.recording.oom_snapshot_path)
    assert read_snapshot(seen.recording.oom_snapshot_path).traces[0][-1].action == "oom"
    assert seen.recording.output_path.read_text().count("\n") >= 40 + 5
    assert sorted(entry.name for entry in seen.recording.folder.iterdir()) == [
        "holders-oom.json",
        "manifest.json",
        "output.log",
        "snapshot-oom.pickle",
        "snapshot.pickle",
    ]


def test_a_caught_error_is_kept_too_and_the_exit_code_is_the_programs(record) -> None:
    seen = record.run(
        """
        import sys, torch
        torch.zeros(3)
        try:
            torch.empty(1 << 40, dtype=torch.uint8, device="cuda")
        except torch.OutOfMemoryError:
            sys.exit(23)
        """
    )
    assert seen.code == 23
    assert (seen.recording.manifest.exit.kind, seen.recording.manifest.exit.code) == (
        ExitKind.EXCEPTION,
        23,
    )
    assert seen.recording.oom_snapshot_path is not None


def test_killed_by_sigkill_what_was_written_is_whole(record) -> None:
    seen = record.run(
        """
        import os, signal, time, torch
        import vramdoc
        vramdoc.mark("load")
        weights = torch.empty(1 << 30, dtype=torch.uint8, device="cuda")
        vramdoc.mark("train")
        time.sleep(1.5)
        os.kill(os.getpid(), signal.SIGKILL)
        """,
        every=0.5,
    )
    manifest = seen.recording.manifest
    assert seen.code == 137
    assert (manifest.exit.kind, manifest.exit.signal) == (ExitKind.SIGNAL, 9)
    assert any("SIGKILL" in note for note in manifest.notes)
    assert [(phase.name, phase.ended_us is None) for phase in manifest.phases] == [
        ("load", False),
        ("train", True),
    ]
    assert manifest.statistics["active_bytes.all.current"] == 1 << 30
    assert 5 in lines_alive(seen.recording.snapshot_path)


def test_a_crash_keeps_the_stacks_that_python_had(record) -> None:
    seen = record.run(
        """
        import ctypes, torch
        torch.ones(3, device="cuda")
        ctypes.string_at(0)
        """
    )
    manifest = seen.recording.manifest
    assert seen.code == 139
    assert (manifest.exit.kind, manifest.exit.signal) == (ExitKind.SIGNAL, signal.SIGSEGV)
    assert re.search(r'train\.py", line 4', manifest.exit.traceback)
    assert seen.err == ""
    assert not list(seen.recording.folder.glob("fatal*"))


SIGNALLED = """
import os, signal, sys, time, torch
held = torch.empty(1 << 28, dtype=torch.uint8, device="cuda")
{setup}
print(os.getpid(), flush=True)
for _ in range(600):
    time.sleep(0.1)
"""


def test_sigusr1_writes_a_snapshot_and_sigterm_still_ends_the_program(record) -> None:
    script = record.script(SIGNALLED.format(setup=""))
    process = record.start(sys.executable, script.name, gpu="8GiB")
    pid = int(process.stdout.readline())
    (folder,) = (entry for entry in (record.folder / ".vramdoc").iterdir() if entry.is_dir())
    process.send_signal(signal.SIGUSR1)  # to vramdoc, which hands it to its recorders
    for _ in range(100):
        if (folder / "snapshot.pickle").exists():
            break
        time.sleep(0.1)
    assert lines_alive(folder / "snapshot.pickle") == {3}
    for _ in range(100):
        if (folder / "holders.json").exists():
            break
        time.sleep(0.1)
    (holder,) = Recording(folder).survey.holders
    assert (holder.what, holder.line) == ("variable `held`", 0)
    os.kill(pid, signal.SIGTERM)
    seen = record.finish(process)
    assert seen.code == 128 + signal.SIGTERM
    assert (seen.recording.manifest.exit.kind, seen.recording.manifest.exit.signal) == (
        ExitKind.SIGNAL,
        signal.SIGTERM,
    )
    assert seen.recording.manifest.statistics["active_bytes.all.current"] == 1 << 28


@pytest.mark.parametrize(
    ("setup", "code"),
    [
        ("signal.signal(signal.SIGTERM, lambda *_: sys.exit(4))", 4),
        # A listener of the program's own, as asyncio installs it, and SIGTERM at its default.
        (
            "import socket; a, b = socket.socketpair(); b.setblocking(False); signal.set_wakeup_fd(b.fileno())",
            143,
        ),
    ],
    ids=["own-handler", "own-wakeup"],
)
def test_a_program_with_signals_of_its_own_keeps_them(record, setup: str, code: int) -> None:
    script = record.script(SIGNALLED.format(setup=setup))
    process = record.start(sys.executable, script.name, gpu="8GiB")
    os.kill(int(process.stdout.readline()), signal.SIGTERM)
    seen = record.finish(process)
    assert seen.code == code
    assert seen.recording.snapshot_path is not None


def test_a_stuck_main_thread_does_not_keep_sigterm_from_ending_it(record) -> None:
    script = record.script(
        """
        import ctypes, os, torch
        held = torch.empty(1 << 28, dtype=torch.uint8, device="cuda")
        print(os.getpid(), flush=True)
        libc = ctypes.CDLL(None)
        while True:
            libc.sleep(1000)  # in C, without the interpreter's lock
        """
    )
    process = record.start(sys.executable, script.name, gpu="8GiB")
    time.sleep(0.5)
    os.kill(int(process.stdout.readline()), signal.SIGTERM)
    seen = record.finish(process)
    assert seen.code == 128 + signal.SIGTERM
    assert seen.recording.snapshot_path is not None


TWO_RANKS = """
import os, torch, torch.distributed as dist
dist.init_process_group("gloo")
rank = dist.get_rank()
torch.cuda.set_device(int(os.environ["LOCAL_RANK"]))
kept = []
for step in range(1000):
    activations = torch.empty(64 << 20, dtype=torch.uint8, device="cuda")
    if rank == 1:
        kept.append(torch.empty(512 << 20, dtype=torch.uint8, device="cuda"))  # the leak
    dist.barrier()
"""


def test_two_ranks_of_which_one_leaks(record) -> None:
    script = record.script(TWO_RANKS)
    torchrun = ["-m", "torch.distributed.run", "--nproc-per-node", "2", "--standalone"]
    seen = record(sys.executable, *torchrun, script.name, gpu="8GiB")
    assert seen.code == 1
    first = seen.recording
    (second,) = first.ranks
    assert (first.manifest.rank, second.manifest.rank) == (0, 1)
    assert second.manifest.exit.kind is ExitKind.OUT_OF_MEMORY
    assert first.manifest.exit.kind is not ExitKind.SUCCESS
    assert (first.manifest.device.index, second.manifest.device.index) == (0, 1)
    assert lines_alive(second.oom_snapshot_path) == {8, 10}
    assert first.snapshot_path is not None
    assert lines_alive(first.snapshot_path) <= {8}


def test_ranks_that_leave_by_sys_exit_are_told_by_their_status(record) -> None:
    """torchrun reports the first failure and kills the others; what each rank passed to ``sys.exit()`` Python has forgotten."""
    script = record.script(
        """
        import os, sys, time, torch
        held = torch.empty(64 << 20, dtype=torch.uint8, device="cuda")
        if os.environ["RANK"] == "0":
            raise SystemExit(0)
        time.sleep(0.5)
        sys.exit(3)
        """
    )
    torchrun = ["-m", "torch.distributed.run", "--nproc-per-node", "2", "--standalone"]
    seen = record(sys.executable, *torchrun, script.name, gpu="8GiB")
    first = seen.recording
    (second,) = first.ranks
    assert (first.manifest.exit.kind, first.manifest.exit.code) == (ExitKind.SUCCESS, 0)
    assert (second.manifest.exit.kind, second.manifest.exit.code) == (ExitKind.EXCEPTION, 3)
    assert not list(first.folder.rglob("exit-status"))


def test_accelerate_launches_ranks_that_are_recorded_each(record) -> None:
    pytest.importorskip("accelerate")
    script = record.script(
        """
        import torch
        from accelerate import Accelerator
        from accelerate.utils import InitProcessGroupKwargs
        accelerator = Accelerator(kwargs_handlers=[InitProcessGroupKwargs(backend="gloo")])
        kept = []
        for step in range(1000):
            activations = torch.empty(64 << 20, dtype=torch.uint8, device=accelerator.device)
            if accelerator.process_index == 1:
                kept.append(torch.empty(512 << 20, dtype=torch.uint8, device=accelerator.device))
            accelerator.wait_for_everyone()
        """
    )
    launch = ["-m", "accelerate.commands.launch", "--multi_gpu", "--num_processes", "2"]
    plain = ["--num_machines", "1", "--mixed_precision", "no", "--dynamo_backend", "no"]
    seen = record(sys.executable, *launch, *plain, script.name, gpu="8GiB")
    (second,) = seen.recording.ranks
    assert seen.code == 1, seen.err
    assert second.manifest.exit.kind is ExitKind.OUT_OF_MEMORY
    assert (seen.recording.manifest.rank, second.manifest.rank) == (0, 1)
    assert lines_alive(second.oom_snapshot_path) == {8, 10}
    assert second.oom_survey.holders[0].what == "list `kept`"


def test_killed_before_the_first_snapshot_it_says_so(record) -> None:
    seen = record.run(
        """
        import os, signal, torch, vramdoc
        vramdoc.mark("load")
        weights = torch.empty(1 << 30, dtype=torch.uint8, device="cuda")
        os.kill(os.getpid(), signal.SIGKILL)
        """
    )
    manifest = seen.recording.manifest
    assert seen.recording.snapshot_path is None
    assert [phase.name for phase in manifest.phases] == ["load"]
    assert any("before its first snapshot" in note for note in manifest.notes)


def test_a_run_of_two_seconds_has_a_snapshot_when_it_is_killed(record) -> None:
    seen = record.run(
        """
        import os, signal, time, torch
        weights = torch.empty(1 << 30, dtype=torch.uint8, device="cuda")
        time.sleep(2)
        os.kill(os.getpid(), signal.SIGKILL)
        """
    )
    assert lines_alive(seen.recording.snapshot_path) == {3}


def test_children_of_multiprocessing_keep_their_own(record) -> None:
    seen = record.run(
        """
        import torch, torch.multiprocessing as mp

        def use(amount):
            held = torch.empty(amount << 20, dtype=torch.uint8, device="cuda")

        if __name__ == "__main__":
            forked = mp.get_context("fork").Process(target=use, args=(100,))
            forked.start()
            forked.join()
            failing = mp.get_context("fork").Process(target=use, args=(1 << 20,))
            failing.start()
            failing.join()
            use(300)
            print(forked.exitcode, failing.exitcode)
        """
    )
    assert seen.out == "0 1\n"
    recordings = [seen.recording, *seen.recording.ranks]
    ends = sorted(
        (r.manifest.exit.kind.value, r.manifest.statistics["allocated_bytes.all.peak"] >> 20)
        for r in recordings
    )
    assert ends == [("oom", 0), ("success", 100), ("success", 300)]


def test_a_forked_child_that_ends_does_not_end_the_parents_recording(record) -> None:
    seen = record.run(
        """
        import os, signal, sys, torch
        held = torch.empty(1 << 28, dtype=torch.uint8, device="cuda")
        for end in (lambda: sys.exit(0), lambda: os.kill(os.getpid(), signal.SIGTERM), lambda: 1 / 0):
            pid = os.fork()
            if pid == 0:
                sys.stderr = open(os.devnull, "w")
                end()
            print(os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]), end=" ", flush=True)
        """
    )
    assert (seen.code, seen.out) == (0, "0 -15 1 ")
    assert seen.recording.ranks == ()
    assert seen.recording.manifest.exit.kind is ExitKind.SUCCESS


def test_torch_without_the_gpu_leaves_nothing(record) -> None:
    seen = record.run("import torch; print(torch.ones(2).sum())")
    assert (seen.code, seen.out, seen.err) == (0, "tensor(2.)\n", "")
    assert not (record.folder / ".vramdoc").exists()


def test_a_folder_that_cannot_be_written_costs_one_line(record) -> None:
    (record.folder / ".vramdoc").write_text("a file is in the way")
    seen = record.run('import torch; print(torch.ones(2, device="cuda").shape)')
    assert (seen.code, seen.out) == (0, "torch.Size([2])\n")
    (line,) = seen.err.splitlines()
    assert line.startswith("vramdoc: cannot write")
    assert line.endswith("the program runs on, not recorded")


def test_a_full_disk_costs_one_line(record) -> None:
    """A limit on file sizes is the full disk that a test can make; the program itself writes nothing."""
    seen = record.run(
        """
        import resource, torch
        for _ in range(3):
            try:
                torch.empty(1 << 40, dtype=torch.uint8, device="cuda")
            except torch.OutOfMemoryError:
                resource.setrlimit(resource.RLIMIT_FSIZE, (1000, 1000))
        print("on")
        """
    )
    assert (seen.code, seen.out) == (0, "on\n")
    (line,) = (line for line in seen.err.splitlines() if "vramdoc" in line)
    assert "not recorded" in line
    names = {path.name for path in seen.recording.folder.iterdir()}
    # What was whole stays: the first error's snapshot; nothing unfinished.
    assert "snapshot-oom.pickle" in names
    assert not any(name.startswith(".") for name in names)
    assert seen.recording.manifest.exit.kind is ExitKind.SUCCESS


def test_the_history_holds_what_was_asked_for(record) -> None:
    source = """
        import torch
        for _ in range(50):
            torch.empty(1 << 20, device="cuda")
        """
    seen = record.run(source, max_entries=20, stacks="none", alloc_conf="max_split_size_mb:64")
    snapshot = read_snapshot(seen.recording.snapshot_path)
    assert len(snapshot.traces[0]) == 20
    assert not any(event.frames for event in snapshot.traces[0])
    assert snapshot.alloc_conf == "max_split_size_mb:64"
    assert seen.recording.manifest.alloc_conf == "max_split_size_mb:64"
    assert seen.recording.manifest.environment["PYTORCH_CUDA_ALLOC_CONF"] == "max_split_size_mb:64"


def test_a_snapshot_does_not_import_the_compiler(record) -> None:
    seen = record.run(
        """
        import sys, torch
        held = torch.empty(1 << 20, device="cuda")
        from vramdoc.record.inside.history import write_snapshot
        from pathlib import Path
        write_snapshot(Path("own.pickle"))
        print("torch._inductor" in sys.modules, "_inductor" in vars(torch))
        """
    )
    assert seen.out == "False False\n"
    (segment,) = pickle.loads((record.folder / "own.pickle").read_bytes())["segments"]
    assert segment["blocks"][0]["frames"][0]["line"] == 3


def test_two_programs_in_one_folder_at_once(record) -> None:
    script = record.script('import torch; held = torch.ones(9, device="cuda"); print("on")')
    both = [record.start(sys.executable, script.name, gpu="8GiB") for _ in range(2)]
    for process in both:
        assert process.communicate(timeout=120) == ("on\n", "")
    folders = [entry for entry in (record.folder / ".vramdoc").iterdir() if entry.is_dir()]
    assert [Recording(folder).manifest.exit.kind for folder in folders] == [ExitKind.SUCCESS] * 2
