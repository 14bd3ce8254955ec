"""A recorded program is the program: same arguments, output, exit code; and without torch it leaves nothing."""

import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from vramdoc.errors import UsageError
from vramdoc.record.command import record_command

pytestmark = pytest.mark.skipif(sys.platform == "win32", reason="signals and pipes of POSIX")

PROGRAM = """
import os, sys
sys.stdout.write("out \\x1b[1m\\u00e9\\r\\n")
sys.stdout.flush()
sys.stderr.write("err\\n")
print(sys.argv[1:], sys.stdin.readline(), os.isatty(1), file=sys.stdout)
sys.exit(7)
"""


def plainly(folder: Path, argv: list[str], **options) -> subprocess.CompletedProcess[bytes]:
    return subprocess.run(argv, cwd=folder, check=False, capture_output=True, **options)


def test_a_program_without_torch_is_unchanged_and_leaves_no_folder(record) -> None:
    record.script(PROGRAM)
    argv = [sys.executable, "train.py", "--lr", "1e-3", ""]
    bare = plainly(record.folder, argv, env=record.environment(), stdin=subprocess.DEVNULL)
    seen = record(*argv)
    assert (seen.code, seen.out.encode(), seen.err.encode()) == (
        bare.returncode,
        bare.stdout.replace(b"\r\n", b"\n"),
        bare.stderr,
    )
    assert not (record.folder / ".vramdoc").exists()


def test_its_path_and_modules_are_unchanged(record) -> None:
    source = (
        "import sys; print(sys.path, sorted(m for m in sys.modules if 'vramdoc' in m), sys.flags)"
    )
    argv = [sys.executable, "-c", source]
    bare = plainly(record.folder, argv, env=record.environment())
    assert record(*argv).out.encode() == bare.stdout


@pytest.mark.parametrize(
    "argv",
    [
        [sys.executable, "-m", "timeit", "-h"],
        ["sh", "-c", "echo $0 $1; exit 4", "a b", "c"],
        [sys.executable, "-c", "import os; os._exit(9)"],
        [sys.executable, "-c", "raise ValueError('x')"],
        [sys.executable, "-I", "-c", "print(1)"],
    ],
)
def test_however_it_is_started(record, argv: list[str]) -> None:
    bare = plainly(record.folder, argv, env=record.environment())
    seen = record(*argv)
    assert (seen.code, seen.out, seen.err) == (
        bare.returncode,
        bare.stdout.decode(),
        bare.stderr.decode(),
    )


def test_a_sitecustomize_of_the_program_still_runs(record) -> None:
    place = record.folder / "site"
    place.mkdir()
    (place / "sitecustomize.py").write_text("print('custom', __name__)")
    seen = record(sys.executable, "-c", "import sitecustomize", env={"PYTHONPATH": str(place)})
    # vramdoc's own interpreter has it too.
    assert seen.out == "custom sitecustomize\n" * 2


def test_a_broken_sitecustomize_breaks_as_it_would(record) -> None:
    place = record.folder / "site"
    place.mkdir()
    (place / "sitecustomize.py").write_text("import not_there")
    environment = record.environment(PYTHONPATH=str(place))
    argv = [sys.executable, "-c", "print('on')"]
    bare = plainly(record.folder, argv, env=environment)
    seen = record(*argv, env={"PYTHONPATH": str(place)})
    assert (seen.code, seen.out) == (bare.returncode, "on\n")
    assert "not_there" in seen.err


@pytest.mark.parametrize("number", [signal.SIGKILL, signal.SIGSEGV, signal.SIGTERM])
def test_a_signal_is_passed_on_as_a_shell_does(record, number: signal.Signals) -> None:
    source = f"import os; os.kill(os.getpid(), {int(number)})"
    assert record(sys.executable, "-c", source).code == 128 + number


def test_a_request_to_end_reaches_the_program(record) -> None:
    source = """
import signal, sys, time
signal.signal(signal.SIGTERM, lambda *_: sys.exit(5))
print("ready", flush=True)
time.sleep(60)
"""
    process = record.start(sys.executable, "-c", source)
    assert process.stdout.readline() == "ready\n"
    process.send_signal(signal.SIGTERM)
    assert record.finish(process).code == 5


def test_a_reader_that_leaves_ends_the_program_as_without_us(record) -> None:
    argv = [sys.executable, "-c", "while True: print('y' * 1000)"]
    process = record.start(*argv)
    process.stdout.read(10)
    process.stdout.close()
    process.stdout = None
    assert record.finish(process).code in {1, 120, 128 + signal.SIGPIPE}


def test_a_flood_passes_through_whole(record) -> None:
    source = "import sys; [sys.stdout.write('x' * 999 + '\\n') for _ in range(20_000)]"
    assert len(record(sys.executable, "-c", source).out) == 20_000_000


def test_both_streams_on_one_pipe_keep_their_order(record) -> None:
    source = "import os; [os.write(1 + i % 2, b'%d\\n' % i) for i in range(2000)]"
    reader, writer = os.pipe()
    with os.fdopen(reader) as lines:
        child = subprocess.Popen(
            record.command(sys.executable, "-c", source),
            cwd=record.folder,
            env=record.environment(),
            stdout=writer,
            stderr=writer,
        )
        os.close(writer)
        text = lines.read()
    assert child.wait(60) == 0
    assert text.split() == [str(number) for number in range(2000)]


def test_output_to_a_file_is_left_to_the_program(record) -> None:
    path = record.folder / "out.txt"
    path.write_text("before\n")
    argv = record.command(sys.executable, "-c", "import os; print(os.fstat(1).st_ino)")
    with path.open("a") as file:
        subprocess.run(argv, cwd=record.folder, env=record.environment(), stdout=file, check=True)
    assert path.read_text() == f"before\n{path.stat().st_ino}\n"


def test_a_program_that_is_not_there_is_said_in_one_line(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="no_such_program"):
        record_command(["no_such_program"], root=tmp_path / "root")
    with pytest.raises(UsageError, match="no program"):
        record_command([], root=tmp_path / "root")
    assert not (tmp_path / "root").exists()


def test_a_config_that_torch_refuses_starts_nothing(tmp_path: Path) -> None:
    witness = tmp_path / "started"
    argv = [sys.executable, "-c", f"open({str(witness)!r}, 'w')"]
    with pytest.raises(UsageError, match="max_split_size"):
        record_command(argv, alloc_conf="max_split_size_mb:1", root=tmp_path / "root")
    assert not witness.exists()


def test_captured_output_stays_out_of_ours(record) -> None:
    seen = record(sys.executable, "-c", "print('hidden')", capture_output=True)
    assert (seen.out, seen.err, seen.code) == ("", "", 0)


def test_what_a_captured_program_left_running_is_not_awaited(record) -> None:
    seen = record("sh", "-c", "sleep 300 & echo $! > pid", capture_output=True)
    assert seen.code == 0
    os.kill(int((record.folder / "pid").read_text()), signal.SIGKILL)  # it was still there


def test_on_a_terminal_the_program_sees_the_terminal(record) -> None:
    """Colours, progress bars and prompts depend on it; so the output is not kept."""
    main, terminal = os.openpty()
    source = "import os, sys; print(os.isatty(0), os.isatty(1), os.isatty(2), os.ttyname(1))"
    child = subprocess.Popen(
        record.command(sys.executable, "-c", source),
        cwd=record.folder,
        env=record.environment(),
        stdin=terminal,
        stdout=terminal,
        stderr=terminal,
    )
    assert child.wait(60) == 0
    assert os.read(main, 1000).decode().split() == ["True"] * 3 + [os.ttyname(terminal)]
    os.close(main)
    os.close(terminal)
