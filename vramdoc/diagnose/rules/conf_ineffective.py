"""conf-ineffective: an allocator setting that was made and is not in force."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

from vramdoc.diagnose.answers import (
    THE_ERROR,
    cite,
    confirmed,
    quote,
    ruled_out,
    text_is_silent,
    undecided,
)
from vramdoc.diagnose.rule import Rule
from vramdoc.diagnose.script_signs import SETTING_NOT_READ, source_line, violation
from vramdoc.diagnose.settings import entries, release_of
from vramdoc.diagnose.verdict import Confidence, Severity, Verdict
from vramdoc.evidence.case import Case
from vramdoc.facts import Fact, Source

if TYPE_CHECKING:
    from vramdoc.lint.violation import Violation

ID = "conf-ineffective"
_CUDA, _HIP, _PLAIN = "PYTORCH_CUDA_ALLOC_CONF", "PYTORCH_HIP_ALLOC_CONF", "PYTORCH_ALLOC_CONF"
NATIVE_ONLY = (
    "max_split_size_mb",
    "roundup_power2_divisions",
    "garbage_collection_threshold",
    "expandable_segments",
)


def judge(case: Case) -> Verdict:
    """Confirm from a warning, from the name of the variable, or from a recording's environment against its snapshot."""
    log = case.crash
    if log is not None and (ignored := log.first("conf-ignored")):
        keys = ignored.readings.get("keys") or ignored.readings.get("key")
        return confirmed(
            ID,
            f"torch ignores {keys.text if keys else 'the setting'}: "
            + (
                "the cudaMallocAsync backend has no such options."
                if ignored.wording == "async-options"
                else "only 0 and 1 count for it."
            ),
            [quote(ignored)],
            severity=Severity.WARNING,
        )
    if (set_in_vain := violation(case, *SETTING_NOT_READ)) is not None:
        return _in_vain(case, set_in_vain)
    findings = list(_from_recording(case)) or list(_from_text(case))
    if findings:
        summary, evidence, severity = findings[0]
        return confirmed(
            ID, summary, evidence, severity=severity, notes=[text for text, _, _ in findings[1:]]
        )
    if log is not None and (renamed := log.first("conf-renamed")):
        return undecided(
            ID,
            "torch advises the new name PYTORCH_ALLOC_CONF; in torch 2.9 following that advice loses the setting, because CUDA still reads only the old name.",
            ["which torch release this is"],
            evidence=[quote(renamed)],
            severity=Severity.WARNING,
        )
    if text_is_silent(case):
        return undecided(ID, "The text holds no error that is known here.", [THE_ERROR])
    return ruled_out(ID, "No setting was found that is not in force.", confidence=Confidence.MEDIUM)


def _in_vain(case: Case, found: Violation) -> Verdict:
    """A script sets a variable where nobody reads it; it leads when the error is about that very variable."""
    text = case.oom.text if case.oom is not None else ""
    variable = next((word for word in found.message.split() if word.startswith("PYTORCH_")), "")
    advised = bool(variable) and variable in text
    fact = source_line(found)
    return confirmed(
        ID,
        f"{fact.where.split(' ')[0]} sets a variable in vain: {found.message}."
        + (
            f" The error is about that variable: the limit stayed in force because {variable} never reached the environment."
            if advised
            else ""
        ),
        [fact],
        severity=Severity.ERROR if advised else Severity.WARNING,
        notes=[
            "Set it in the environment before Python starts (export, or the launcher's configuration)."
        ],
    )


_Finding = tuple[str, list[Fact], Severity]


def _from_text(case: Case) -> Iterator[_Finding]:
    log = case.crash
    if log is None or log.alloc_conf is None:
        return
    variable = log.signs.get("alloc-conf-variable")
    newest = release_of(log.torch_version or log.torch_at_most)
    if variable is not None and variable.text == _PLAIN and newest is not None and newest <= (2, 9):
        yield (
            f"{_PLAIN} is set, but torch up to 2.9 reads only {_CUDA} for the CUDA allocator.",
            [
                cite(variable, "variable"),
                Fact("alloc_conf", log.alloc_conf, "text", Source.READ, "the text"),
            ],
            Severity.WARNING,
        )
    yield from _within(log.alloc_conf)


def _from_recording(case: Case) -> Iterator[_Finding]:
    manifest = case.manifest
    if manifest is None:
        return
    release = release_of(manifest.versions.get("torch"))
    values = {
        name: manifest.environment[name]
        for name in (_CUDA, _HIP, _PLAIN)
        if name in manifest.environment
    }
    facts = [
        Fact(name.lower(), value, "text", Source.READ, "environment in the manifest")
        for name, value in values.items()
    ]
    if _PLAIN in values and _CUDA not in values and release is not None and release <= (2, 9):
        yield (
            f"{_PLAIN} is set, but torch {manifest.versions['torch']} reads only {_CUDA}.",
            facts,
            Severity.WARNING,
        )
    if _PLAIN in values and _CUDA in values and values[_PLAIN] != values[_CUDA]:
        yield (
            f"Both {_CUDA} and {_PLAIN} are set; only the first is read, they are not merged.",
            facts,
            Severity.WARNING,
        )
    snapshot = case.oom_snapshot or case.snapshot
    wanted = values.get(_CUDA) or values.get(_PLAIN) or ""
    if (
        snapshot is not None
        and snapshot.allocator_settings
        and wanted
        and snapshot.alloc_conf
        and entries(wanted) != entries(snapshot.alloc_conf)
    ):
        in_force = Fact(
            "alloc_conf_in_force",
            snapshot.alloc_conf,
            "text",
            Source.READ,
            "allocator_settings of the snapshot",
        )
        yield (
            f"The environment says {wanted!r}, but the allocator ran with {snapshot.alloc_conf!r}: it was set after the first use of CUDA, or changed by the program.",
            [*facts, in_force],
            Severity.WARNING,
        )
    yield from _within(manifest.alloc_conf)


def _within(setting: str) -> Iterator[_Finding]:
    """Options that cancel or ignore one another (allocator-spec 6.4)."""
    options = entries(setting)
    fact = [Fact("alloc_conf", setting, "text", Source.READ, "the setting")]
    native = [key for key in NATIVE_ONLY if key in options]
    if options.get("backend") == "cudaMallocAsync" and native:
        yield f"The cudaMallocAsync backend ignores {', '.join(native)}.", fact, Severity.WARNING
    if "garbage_collection_threshold" in options and "per_process_memory_fraction" not in options:
        yield (
            "garbage_collection_threshold has an effect only together with a memory fraction, which this setting does not make.",
            fact,
            Severity.INFO,
        )
    if options.get("expandable_segments") == "True" and "max_split_size_mb" in options:
        yield (
            "max_split_size_mb has no effect on splitting while expandable_segments is on.",
            fact,
            Severity.INFO,
        )


RULE = Rule(
    id=ID,
    title="An allocator setting that is not in force",
    meaning="The setting was accepted or never seen, and changes nothing: the variable has a name that this release does not read, it was set after CUDA was in use or only inside a function call, or another option makes it pointless.",
    how_decided=(
        "torch's warnings; a variable name against the release (PYTORCH_ALLOC_CONF is read by CUDA from 2.10 on, although 2.9 already advises it); in a recording the environment against the allocator_settings of the snapshot; options that ignore each other."
    ),
    not_to_confuse_with='conf-error. A setting made after "import torch" but before the first use of CUDA usually works: it is read lazily.',
    remedies=("RX-SETEARLY", "RX-ENVNAME", "RX-CONFFIX"),
    references=("allocator-spec 6.1, 6.2, 6.4", "pytorch#92074, #183387"),
    judge=judge,
)
