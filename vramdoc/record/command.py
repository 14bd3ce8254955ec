"""Run somebody's program unchanged, with a recorder in each of its Python processes that uses the GPU through torch.

Its arguments, its output and its exit code are its own. What the processes keep is ``record.inside.script``'s business; this
module starts the program, waits, and writes the ends that the processes could not write themselves.
"""

from __future__ import annotations

import contextlib
import itertools
import os
import re
import shutil
import signal
import subprocess
import threading
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime, timezone
from pathlib import Path
from types import FrameType

from vramdoc.allocator.config import AllocatorConfig
from vramdoc.errors import DeviceUnavailable, MissingDependency, UsageError
from vramdoc.record.aftermath import complete_run, running_pids
from vramdoc.record.capture import Capture
from vramdoc.record.child_process import end_child
from vramdoc.record.device_choice import ChosenDevice, choose_device, release_of
from vramdoc.record.ending import read_oom_kills
from vramdoc.record.environment import with_alloc_conf
from vramdoc.record.preload import with_preload
from vramdoc.record.recording import DEFAULT_ROOT, Recording
from vramdoc.record.settings import RecordingSettings
from vramdoc.record.storage import folder_name
from vramdoc.virtual_gpu.torch_build import find_torch

MAX_ENTRIES = 1_000_000
_PROCESSES = re.compile(r"--(?:nproc[-_]per[-_]node|num[-_]processes)")
"""torchrun's and accelerate's options for how many processes, so devices, a program expects on this machine."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Ended:
    """How a recorded command came to its end."""

    recording: Recording | None
    """None when nothing of it used the GPU."""
    code: int
    """Its exit code, 128 + N for a signal."""
    output: bytes
    """What it printed, where that was captured and there is no recording that holds it."""


def record_command(  # noqa: PLR0913 # one keyword an option of the command line
    argv: Sequence[str],
    *,
    gpu: str | None = None,
    alloc_conf: str = "",
    root: Path = DEFAULT_ROOT,
    foreign_bytes: int = 0,
    every: float | None = None,
    max_entries: int = MAX_ENTRIES,
    stacks: str = "python",
    holders: bool = True,
    capture_output: bool = False,
) -> Ended:
    """Run ``argv`` to its end.

    ``gpu`` as for ``run_workload``; None leaves the program the devices it finds. ``every`` is seconds between snapshots, by
    default as often as 1 % of the time allows. Without ``holders`` nobody looks for what holds memory. With
    ``capture_output`` what it prints goes to the recording only.

    Raises:
        UsageError: there is no such program, no such GPU, or torch would refuse the config string; nothing was started.
        DeviceUnavailable, MissingDependency: as for ``run_workload``.
    """
    if not argv:
        raise UsageError("no program to record", "vramdoc record -- python train.py")
    device = None if gpu is None else _device(gpu, foreign_bytes, argv)
    _check_config(alloc_conf, device, argv)
    subject = _subject(argv)
    folder = root.absolute() / folder_name(subject, datetime.now(timezone.utc))
    settings = RecordingSettings(
        folder=str(folder),
        subject=subject,
        device_kind="real" if device is None else device.kind,
        device_key=gpu or "",
        assumed={} if device is None else device.assumed,
        max_entries=max_entries,
        stacks=stacks,
        holders=holders,
        every_s=every,
    )
    environment = dict(os.environ) if device is None else device.environment(os.environ)
    if device is not None and device.kind == "real":
        environment["CUDA_VISIBLE_DEVICES"] = _visible(device.index, os.environ)
    if alloc_conf:
        environment = with_alloc_conf(environment, alloc_conf)
    before = read_oom_kills()
    with Capture(only_capture=capture_output) as capture:
        pid, status = _run(argv, with_preload(settings.injected_into(environment)), folder, capture)
        recording = complete_run(folder, pid=pid, status=status, before=before, note=capture.note)
        if recording is not None:
            capture.keep(recording.folder)
        output = capture.kept() if recording is None else b""
    return Ended(recording=recording, code=status if status >= 0 else 128 - status, output=output)


def _device(gpu: str, foreign_bytes: int, argv: Sequence[str]) -> ChosenDevice:
    return choose_device(gpu, foreign_bytes, devices=_processes(argv), python=_python(argv))


def _visible(index: int, environment: Mapping[str, str]) -> str:
    """CUDA_VISIBLE_DEVICES that leaves the program the device that it would have known as ``cuda:index``."""
    listed = [name for name in environment.get("CUDA_VISIBLE_DEVICES", "").split(",") if name]
    if index < len(listed):
        return listed[index].strip()
    return str(index)


def _check_config(alloc_conf: str, device: ChosenDevice | None, argv: Sequence[str]) -> None:
    """Refuse what torch would refuse; a program whose torch cannot be found is left to find out itself."""
    if device is not None:
        AllocatorConfig.parse(alloc_conf, release=device.torch_release)
    elif alloc_conf:
        with contextlib.suppress(MissingDependency, DeviceUnavailable):
            build = find_torch(_python(argv))
            AllocatorConfig.parse(alloc_conf, release=release_of(build.version))


def _python(argv: Sequence[str]) -> str | None:
    """The interpreter of ``python train.py``; None for torchrun and the like, which are taken to share this one's torch."""
    is_python = re.fullmatch(r"(?:python|pypy)[\d.]*(?:\.exe)?", Path(argv[0]).name) is not None
    return shutil.which(argv[0]) if is_python else None


def _processes(argv: Sequence[str]) -> int:
    """How many processes the program starts on this machine, as far as its own arguments say so."""
    for option, following in zip(argv, (*argv[1:], ""), strict=True):
        name, _, value = option.partition("=")
        if _PROCESSES.fullmatch(name) and (value or following).isdecimal():
            return max(int(value or following), 1)
    return 1


def _subject(argv: Sequence[str]) -> str:
    """What the program is called, without its folder: the script or module where one is visible, else the command."""
    following = dict(itertools.pairwise(argv))
    script = next((argument for argument in argv if argument.endswith(".py")), None)
    return Path(script or following.get("-m") or argv[0]).name


def _run(
    argv: Sequence[str], environment: Mapping[str, str], folder: Path, capture: Capture
) -> tuple[int, int]:
    """Start the program and wait for its end; returns its pid and its status as ``subprocess`` gives it."""
    try:
        child = subprocess.Popen(argv, env=environment, **capture.streams)
    except OSError as error:
        raise UsageError(
            f"cannot run {argv[0]}: {error.strerror or error}",
            "give the command as you would type it, after --",
        ) from error
    try:
        capture.started(child)
        with _signals_passed_on(child, folder, only_capture=capture.only_capture):
            status = child.wait()
    except BaseException:
        end_child(child)
        raise
    capture.finish()
    return child.pid, status


@contextlib.contextmanager
def _signals_passed_on(
    child: subprocess.Popen[bytes], folder: Path, *, only_capture: bool
) -> Iterator[None]:
    """While the program runs, a request to end is for it; SIGUSR1 is for its recorders.

    An interrupt from the terminal reaches it without us. In ``only_capture`` the program is a part of our own command, which
    an interrupt then ends too.
    """

    def to_child(number: int, _frame: FrameType | None) -> None:
        child.send_signal(number)

    def to_recorders(number: int, _frame: FrameType | None) -> None:
        for pid in running_pids(folder):
            with contextlib.suppress(OSError):
                os.kill(pid, number)

    def by_itself(_number: int, _frame: FrameType | None) -> None:
        if only_capture:
            raise KeyboardInterrupt

    reactions = {
        "SIGINT": by_itself,
        "SIGTERM": to_child,
        "SIGHUP": to_child,
        "SIGUSR1": to_recorders,
    }
    before = {}
    if threading.current_thread() is threading.main_thread():
        for name, reaction in reactions.items():
            number = getattr(signal, name, None)
            if number is not None and signal.getsignal(number) is not signal.SIG_IGN:
                before[number] = signal.signal(number, reaction)
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
