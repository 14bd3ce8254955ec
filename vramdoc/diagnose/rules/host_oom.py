"""host-oom: the computer's own memory ran out, not the GPU's."""

from __future__ import annotations

from collections.abc import Iterator

from vramdoc.crashlog.incident import CrashLog, Incident
from vramdoc.diagnose.answers import (
    THE_ERROR,
    cite,
    confirmed,
    derived,
    quote,
    ruled_out,
    text_is_silent,
    undecided,
)
from vramdoc.diagnose.code_lines import code_lines
from vramdoc.diagnose.rule import Rule
from vramdoc.diagnose.verdict import Confidence, Verdict
from vramdoc.evidence.anatomy import NUMBERED
from vramdoc.evidence.case import Case
from vramdoc.facts import Fact, Source
from vramdoc.record.manifest import ExitKind
from vramdoc.units import format_bytes

ID = "host-oom"
CROWDED = 80.0
"""Per cent of host memory in use from which a silent kill is most likely the kernel's out-of-memory killer."""
_OTHER_FAILURES = (
    *NUMBERED,
    "bare-oom",
    "vgpu-limit",
    "cublas",
    "device-assert",
    "resize",
    "conf-error",
    "engine-kv",
    "engine-budget",
    "illegal-access",
    "segfault",
)
"""When one of these is in the text, a launcher's SIGKILL of the remaining processes is its consequence."""
_UNEXPLAINED = {
    "launcher": "A launcher killed its processes; why the first one ended is not in the text.",
    "worker-lost": "Ray lost a worker and lists what can end one: the kernel's out-of-memory killer for want of host memory, a forced stop, a crash. Which it was is not in the text.",
}
"""Wordings that say that a process is gone, and not that somebody killed it for its memory."""
_KERNEL = "the kernel's log (dmesg) or the container's memory limit: an out-of-memory kill is written there"


def judge(case: Case) -> Verdict:
    """Confirm from the host's own messages; a bare kill needs a full host or nothing else that explains it."""
    if case.manifest is not None:
        if case.manifest.exit.kind is ExitKind.HOST_OOM:
            signal = Fact(
                "exit",
                str(case.manifest.exit.signal or case.manifest.exit.code or "killed"),
                "text",
                Source.MEASURED,
                "manifest",
            )
            return confirmed(
                ID,
                "The operating system's out-of-memory killer ended the program: host memory, not the GPU's.",
                [signal],
            )
        if case.crash is None:
            return ruled_out(ID, "The program did not end by the host's out-of-memory killer.")
    log = case.crash
    if log is None:
        return ruled_out(ID, "A snapshot says nothing of the host.", confidence=Confidence.LOW)
    if shared := log.first("shm-full"):
        return _shared_memory(shared)
    if said := log.first("host-oom"):
        return _said(log, said)
    if pinned := _pinned_failure(log):
        return pinned
    kills = sorted(log.all("killed"), key=lambda kill: kill.wording in _UNEXPLAINED)
    killed = kills[0] if kills else None
    if killed is not None and (stopped := log.first("stopped")):
        return ruled_out(
            ID,
            "The text names another reason for the kill.",
            [quote(stopped)],
            confidence=Confidence.MEDIUM,
        )
    if killed is not None and log.first(*_OTHER_FAILURES) is None:
        return _killed(log, killed)
    if text_is_silent(case):
        return undecided(ID, "The text holds no error that is known here.", [THE_ERROR])
    return ruled_out(ID, "No host memory error is in the text.")


def _shared_memory(shared: Incident) -> Verdict:
    if shared.wording in {"bus-error", "sigbus"}:
        return confirmed(
            ID,
            "The process died of SIGBUS: it touched memory that nothing backs. Most often /dev/shm is full, which NCCL and DataLoader workers use (64 MB in a container by default); "
            "else a mapped file was cut short, or its disk is full. It is not the GPU's memory.",
            [quote(shared)],
            confidence=Confidence.MEDIUM,
            notes=[
                "Look with df -h /dev/shm; give the container more (docker run --shm-size=8g, or --ipc=host)."
            ],
        )
    return confirmed(
        ID,
        "Shared memory (/dev/shm) is full, not the GPU's: DataLoader workers hand their batches over through it.",
        [quote(shared)],
        notes=[
            "Give the container more (docker run --shm-size=8g, or --ipc=host), or use fewer workers (num_workers)."
        ],
    )


def _said(log: CrashLog, said: Incident) -> Verdict:
    evidence = [
        quote(said),
        *([cite(said.readings["requested"])] if "requested" in said.readings else []),
    ]
    if said.wording in {"winerror-1455", "page-file"}:
        spawned = "spawn" in log.signs
        return confirmed(
            ID,
            "Windows' commit limit (RAM plus page file) is used up: host memory, not the GPU's, and no fault of the library that was being loaded."
            + (
                " The spawn_main frame shows a multiprocessing or DataLoader worker: each one loads torch's DLLs and commits memory for them."
                if spawned
                else ""
            ),
            evidence,
            notes=["Reduce num_workers, or enlarge the page file."],
        )
    if said.wording == "pinned":
        return confirmed(
            ID,
            "Page-locked (pinned) host memory could not be had: the CUDA error is about the host's memory, not the GPU's.",
            evidence,
            notes=["WSL2 caps pinned memory; a container's memlock limit does so too."],
        )
    return confirmed(
        ID, "Host memory (RAM) ran out, not the GPU's.", evidence, notes=list(_pinned(log))
    )


def _pinned_failure(log: CrashLog) -> Verdict | None:
    """A bare CUDA error out of a frame that pins host memory: page-locked memory ran out, not the device's."""
    bare = log.first("bare-oom")
    line = next(
        (
            line
            for line in code_lines(log)[:3]
            if "pin_memory" in line.function + line.file + line.source
        ),
        None,
    )
    if bare is None or line is None or log.first(*NUMBERED):
        return None
    return confirmed(
        ID,
        "Page-locked (pinned) host memory could not be had: the frame that fails pins memory, and the CUDA error is about the host.",
        [quote(bare), line.fact("pinning_line")],
        confidence=Confidence.MEDIUM,
        notes=["WSL2 caps pinned memory; try pin_memory=False (microsoft/WSL#8447)."],
    )


def _pinned(log: CrashLog) -> Iterator[str]:
    if "pin-memory" in log.signs:
        yield "Pinned memory cannot be swapped out and is capped on WSL2: try pin_memory=False."


def _killed(log: CrashLog, killed: Incident) -> Verdict:
    used = next((o for o in reversed(log.observations) if o.kind == "host-use"), None)
    percent = float(used.readings["percent"].text) if used else None
    if used is not None and percent is not None and percent >= CROWDED:
        bytes_used = int(used.readings["used"].value)
        total = round(bytes_used / percent * 100)
        return confirmed(
            ID,
            f"Host memory, not the GPU's: {format_bytes(bytes_used)} in use are {percent:g} % of about {format_bytes(total)} in all, and a process was killed without a traceback. "
            "That is the kernel's out-of-memory killer or a cgroup limit.",
            [
                quote(killed),
                cite(used.readings["used"]),
                derived("host_total", total, "used / percent"),
            ],
            confidence=Confidence.MEDIUM,
            notes=[
                f"Check {_KERNEL}.",
                "Offloaded parameters and optimizer state need host RAM: 12 bytes a parameter for Adam's fp32 copies and moments.",
            ],
        )
    if killed.wording in _UNEXPLAINED:
        return undecided(
            ID,
            _UNEXPLAINED[killed.wording],
            ["the output of the process that ended first", _KERNEL],
            evidence=[quote(killed)],
        )
    return confirmed(
        ID,
        "A process was killed from outside (SIGKILL, exit 137) without a Python error: most often the kernel's out-of-memory killer or a container's memory limit, which concern host memory and not the GPU's.",
        [quote(killed)],
        confidence=Confidence.MEDIUM,
        notes=[f"Check {_KERNEL}. A scheduler's time limit, or a person, can kill as well."],
    )


RULE = Rule(
    id=ID,
    title="The computer's own memory ran out",
    meaning='RAM, the commit limit of Windows, a container\'s memory limit or /dev/shm is used up. It looks like a crash while loading, a silent "Killed", a bus error in a worker, or WinError 1455, and has nothing to do with VRAM.',
    how_decided=(
        "The host's own messages (CPU allocator, errno 12, bus error, WinError 1455, OOMKilled, the kernel's log). A bare SIGKILL or exit 137 counts when nothing else in the text explains it, and the more so with 80 % of host memory in use; "
        "a launcher that kills its children proves nothing."
    ),
    not_to_confuse_with="true-capacity and other failures of device memory; a broken installation (WinError 1455 names a DLL that is not at fault).",
    remedies=("RX-SHM", "RX-PAGEFILE", "RX-PINNED", "RX-HOST"),
    references=(
        "c10/core/impl/alloc_cpu.cpp",
        "Windows ERROR_COMMITMENT_LIMIT",
        "torch/utils/data/_utils/signal_handling.py",
    ),
    judge=judge,
)
