"""How a program ended, seen from outside: its exit status, and the kernel's own count of out-of-memory kills.

What can be told from inside (which exception) the program's own recorder writes; this module serves where it could not.
"""

from __future__ import annotations

import contextlib
import re
import signal
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from vramdoc.record.manifest import Exit, ExitKind

FAILURES: Mapping[ExitKind, re.Pattern[str]] = {
    ExitKind.OUT_OF_MEMORY: re.compile(
        r"(torch\.cuda\.|torch\.)?OutOfMemoryError\b|CUDA(?: error:)? out of memory"
        r"|Allocation on device .*would exceed allowed memory"
    ),
    ExitKind.CUBLAS: re.compile(r"CUBLAS_STATUS_\w+"),
    ExitKind.RESIZE: re.compile(
        r"Trying to resize storage (that is not resizable|without an allocator)"
    ),
}
"""What an uncaught exception's ``Type: message`` line is kept under; the first that is found. Anything else is ``exception``."""


def exit_of_exception(exception_type: str, message: str, traceback: str, code: int = 1) -> Exit:
    """The end of a program that an exception stopped.

    An interrupt by the person is told apart; the three failures that vramdoc is about are recognised by torch's text.
    """
    text = f"{exception_type}: {message}"
    kind = next((kind for kind, wording in FAILURES.items() if wording.search(text)), None)
    if kind is None:
        is_interrupt = exception_type == "KeyboardInterrupt"
        kind = ExitKind.INTERRUPTED if is_interrupt else ExitKind.EXCEPTION
    return Exit(
        kind=kind,
        code=code,
        exception_type=exception_type,
        message=message,
        traceback=traceback,
    )


def qualified_name(kind: type[BaseException]) -> str:
    """An exception's type as a traceback prints it: ``ValueError``, ``torch.OutOfMemoryError``."""
    is_plain = kind.__module__ in {"builtins", "__main__"}
    return kind.__qualname__ if is_plain else f"{kind.__module__}.{kind.__qualname__}"


@dataclass(frozen=True, slots=True, kw_only=True)
class OomKills:
    """The kernel's counts of processes killed for want of host memory; None where there is no such count."""

    group: int | None
    """Of this control group: a rise names this job."""
    host: int | None
    """Of the whole machine: a rise names somebody on it."""


def read_oom_kills(proc: Path = Path("/proc"), cgroup: Path = Path("/sys/fs/cgroup")) -> OomKills:
    """Read both counts. Source: cgroup v2 ``memory.events``, v1 ``memory.oom_control``, ``/proc/vmstat`` (Linux 4.13)."""
    return OomKills(
        group=next(
            (
                count
                for file in _group_files(proc, cgroup)
                if (count := _oom_kill(file)) is not None
            ),
            None,
        ),
        host=_oom_kill(proc / "vmstat"),
    )


def exit_of_status(returncode: int, before: OomKills, after: OomKills) -> tuple[Exit, str]:
    """The end of a program that wrote no end itself, and a sentence that says how sure that is (or nothing).

    ``returncode`` is as ``subprocess`` gives it: negative for a signal. A shell's 128 + N is read as signal N.
    """
    number = -returncode if returncode < 0 else returncode - 128 if returncode > 128 else 0
    if number == getattr(signal, "SIGKILL", 9):
        return _exit_of_sigkill(returncode, number, before, after)
    if number:
        return Exit(kind=ExitKind.SIGNAL, code=returncode, signal=number), ""
    if returncode == 0:
        return Exit(kind=ExitKind.SUCCESS, code=0), (
            "The program ended without its recorder: it left through os._exit() or replaced itself."
        )
    return Exit(kind=ExitKind.EXCEPTION, code=returncode), ""


def _exit_of_sigkill(
    returncode: int, number: int, before: OomKills, after: OomKills
) -> tuple[Exit, str]:
    host_oom = Exit(kind=ExitKind.HOST_OOM, code=returncode, signal=number)
    if _rose(before.group, after.group):
        return host_oom, (
            "The host's OOM killer ended the program: its control group counted an out-of-memory kill during the run."
        )
    if _rose(before.host, after.host):
        return host_oom, (
            "The host's OOM killer probably ended the program: it was killed by SIGKILL, and this machine counted"
            " an out-of-memory kill during the run (not certain that it was this process)."
        )
    sentence = (
        "Nobody ran out of host memory during the run, so somebody or something else sent SIGKILL."
        if after.host is not None or after.group is not None
        else "Whether the host's OOM killer sent SIGKILL cannot be told here: no counter can be read."
    )
    return Exit(kind=ExitKind.SIGNAL, code=returncode, signal=number), sentence


def _rose(before: int | None, after: int | None) -> bool:
    return before is not None and after is not None and after > before


def _group_files(proc: Path, cgroup: Path) -> list[Path]:
    """Where this process's control group keeps its memory events: v2, v1, and inside a container's namespace."""
    files = []
    with contextlib.suppress(OSError):
        for line in (
            (proc / "self/cgroup").read_text(encoding="ascii", errors="replace").splitlines()
        ):
            _, controllers, path = line.split(":", 2)
            if not controllers:
                files.append(cgroup / path.lstrip("/") / "memory.events")
            elif "memory" in controllers.split(","):
                files.append(cgroup / "memory" / path.lstrip("/") / "memory.oom_control")
    return [*files, cgroup / "memory.events", cgroup / "memory" / "memory.oom_control"]


def _oom_kill(file: Path) -> int | None:
    with contextlib.suppress(OSError):
        found = re.search(r"^oom_kill (\d+)$", file.read_text(encoding="ascii"), re.MULTILINE)
        return int(found[1]) if found else None
    return None
