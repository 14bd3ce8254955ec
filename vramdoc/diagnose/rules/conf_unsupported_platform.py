"""conf-unsupported-platform: an allocator option that this build, kernel or combination cannot do."""

from __future__ import annotations

from vramdoc.crashlog.incident import Incident
from vramdoc.diagnose.answers import (
    THE_ERROR,
    confirmed,
    quote,
    ruled_out,
    text_is_silent,
    undecided,
)
from vramdoc.diagnose.rule import Rule
from vramdoc.diagnose.settings import entries, release_of
from vramdoc.diagnose.verdict import Confidence, Severity, Verdict
from vramdoc.evidence.case import Case
from vramdoc.facts import Fact, Source

ID = "conf-unsupported-platform"
_TEXTS = {
    "expandable": (
        "This is only a warning: expandable_segments has no effect in this build, which was compiled without the driver API (Windows builds up to torch 2.13, ROCm before 7). It is a property of the build, not of the GPU model.",
        "Leave the setting out there, or ignore the warning: nothing failed because of it.",
        Severity.WARNING,
    ),
    "pidfd": (
        "CUDA tensors from expandable segments can be shared between processes only on a kernel that has the system calls pidfd_open (Linux 5.3 or later) and pidfd_getfd (5.6 or later); this one is too old. This is no out-of-memory error.",
        "Switch expandable_segments off in the process that exports the tensors, before it allocates them: a later _set_allocator_settings does not convert segments that exist.",
        Severity.ERROR,
    ),
    "ipc": (
        "Tensors from expandable segments cannot be shared between processes by CUDA IPC in this release.",
        "Switch expandable_segments off in the process that exports the tensors, before it allocates them.",
        Severity.ERROR,
    ),
    "mempool": (
        "Expandable segments do not work together with a custom memory pool (vLLM's sleep mode uses one).",
        "Leave expandable_segments out for this engine, or switch its sleep mode off (pytorch#147851).",
        Severity.ERROR,
    ),
    "async-runtime": ("This build's CUDA runtime is too old for backend:cudaMallocAsync.", "Use the native backend, or a build for CUDA 11.4 or later.", Severity.ERROR),
    "async-device": ("This device or driver does not support cudaMallocAsync.", "Use the native backend.", Severity.ERROR),
    "driver-error": (
        "A driver call of expandable segments failed: on WSL2 and some virtual GPUs mapping memory that way is not supported.",
        "Switch expandable_segments off there (pytorch#192330).",
        Severity.ERROR,
    ),
}  # fmt: skip


def judge(case: Case) -> Verdict:
    """Confirm from torch's own message, or from the setting and platform of a recording."""
    log = case.crash
    incident = log.first("conf-unsupported") if log is not None else None
    if incident is not None:
        return _said(incident)
    driver = log.first("driver-error") if log is not None else None
    if (
        driver is not None
        and log is not None
        and (log.alloc_conf and "expandable_segments:True" in log.alloc_conf)
    ):
        return _said(driver)
    if case.manifest is not None:
        return _recorded(case)
    if driver is not None:
        return undecided(
            ID,
            "A driver call failed, as expandable segments do on WSL2.",
            ["whether expandable_segments was set"],
            evidence=[quote(driver)],
        )
    if text_is_silent(case):
        return undecided(ID, "The text holds no error that is known here.", [THE_ERROR])
    return ruled_out(ID, "No option was refused by the platform.", confidence=Confidence.MEDIUM)


def _said(incident: Incident) -> Verdict:
    summary, advice, severity = _TEXTS[incident.wording]
    return confirmed(ID, summary, [quote(incident)], severity=severity, notes=[advice])


def _recorded(case: Case) -> Verdict:
    manifest = case.manifest
    assert manifest is not None, "the caller looked"
    wanted = entries(manifest.alloc_conf).get("expandable_segments") == "True"
    release = release_of(manifest.versions.get("torch"))
    windows = manifest.platform.get("system", "").lower().startswith("win")
    if wanted and windows and release is not None and release < (2, 14):
        return confirmed(
            ID,
            f"expandable_segments:True is set, and torch {manifest.versions['torch']} on Windows ignores it.",
            [Fact("alloc_conf", manifest.alloc_conf, "text", Source.READ, "manifest")],
            severity=Severity.WARNING,
            notes=[_TEXTS["expandable"][1]],
        )
    return ruled_out(
        ID, "The platform supports the options that are set.", confidence=Confidence.MEDIUM
    )


RULE = Rule(
    id=ID,
    title="An allocator option that the platform cannot do",
    meaning="The option is valid, but this build, operating system, kernel or combination of features does not support it: it is ignored with a warning, or fails when it is used.",
    how_decided="torch's own warning or error; in a recording also expandable_segments:True with a Windows build before torch 2.14.",
    not_to_confuse_with="conf-error (not accepted anywhere), conf-ineffective (set too late or under a name that is not read).",
    remedies=("RX-EXPANDABLEOFF",),
    references=(
        "c10/cuda/CUDAAllocatorConfig.h: PYTORCH_C10_DRIVER_API_SUPPORTED",
        "pytorch#122057, #147851, #192330",
    ),
    judge=judge,
)
