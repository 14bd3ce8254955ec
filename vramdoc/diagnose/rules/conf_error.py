"""conf-error: torch refused the allocator setting."""

from __future__ import annotations

from dataclasses import replace

from vramdoc.crashlog.incident import Incident
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
from vramdoc.diagnose.script_signs import MALFORMED_SETTING, source_line, violation
from vramdoc.diagnose.settings import FORMER, introduced, nearest_key
from vramdoc.diagnose.verdict import Confidence, Verdict
from vramdoc.evidence.case import Case

ID = "conf-error"
_NOTHING_ALLOCATED = "It fails while CUDA is initialised: no memory was allocated yet, and this is no out-of-memory error."
_BANNER = "The bitsandbytes line above is informational: it only names the library that was loaded."
_VALUES = {
    "boolean": "a switch takes True or False, spelled exactly so",
    "separator": "entries are key:value, separated by commas",
    "structure": "an entry lacks its value or a bracket; entries are key:value, separated by commas",
    "number": "a value that should be a number is none",
    "backend-name": "the backend is native or cudaMallocAsync",
    "backend-late": "the backend was changed after torch was imported; it is fixed by then",
    "watermark": "the low watermark ratio must not be above the high one (PYTORCH_MPS_LOW_WATERMARK_RATIO, PYTORCH_MPS_HIGH_WATERMARK_RATIO)",
}


def judge(case: Case) -> Verdict:
    """Confirm from the parser's own error."""
    log = case.crash
    incident = log.first("conf-error") if log is not None else None
    conflict = log.first("conf-conflict") if log is not None else None
    if conflict is not None:
        return confirmed(
            ID,
            "expandable_segments together with max_split_size_mb or garbage_collection_threshold hits an internal assert under memory pressure, up to torch 2.4.",
            [quote(conflict)],
            notes=["Keep expandable_segments:True alone; the other options do nothing beside it."],
        )
    if incident is None:
        if text_is_silent(case):
            return undecided(ID, "The text holds no error that is known here.", [THE_ERROR])
        return ruled_out(ID, "torch accepted the allocator setting.", confidence=Confidence.MEDIUM)
    if incident.wording == "unknown-key":
        banner = [_BANNER] if log is not None and "bitsandbytes-banner" in log.signs else []
        return replace(verdict := _unknown_key(incident), notes=(*verdict.notes, *banner))
    key = incident.readings.get("key")
    rule = _VALUES.get(incident.wording) or " ".join(incident.text.split())
    written = violation(case, *MALFORMED_SETTING)
    line = [source_line(written)] if written is not None else []
    return confirmed(
        ID,
        f"The allocator setting was refused: {rule}.",
        [cite(key, "key") if key else quote(incident), *line],
        notes=[
            *(f"{fact.where.split(' ')[0]}: {fact.value}." for fact in line),
            _NOTHING_ALLOCATED,
        ],
    )


def _unknown_key(incident: Incident) -> Verdict:
    reading = incident.readings["key"]
    key = reading.text
    name, separator, value = key.partition("=")
    if separator and introduced(name):
        return confirmed(
            ID,
            f"The setting is written with = where the allocator wants a colon: write {name}:{value}.",
            [cite(reading, "key")],
            notes=[
                "The option itself exists; = only stands between the variable's name and its value.",
                _NOTHING_ALLOCATED,
            ],
        )
    if since := introduced(key):
        return confirmed(
            ID,
            f"The option {key} is spelled right, but this torch is too old to know it; releases from {since} on accept it.",
            [cite(reading, "key")],
            notes=["Use a newer torch, or leave the option out.", _NOTHING_ALLOCATED],
        )
    if key in FORMER:
        return confirmed(
            ID,
            f"The option {key} existed in torch {FORMER[key]} only; leave it out.",
            [cite(reading, "key")],
            notes=[_NOTHING_ALLOCATED],
        )
    guess = nearest_key(name or key)
    return confirmed(
        ID,
        f"No release of torch knows the option {key}"
        + (f"; the nearest one is {guess}." if guess else "."),
        [cite(reading, "key")],
        notes=[_NOTHING_ALLOCATED],
    )


RULE = Rule(
    id=ID,
    title="The allocator setting was refused",
    meaning="PYTORCH_CUDA_ALLOC_CONF (or PYTORCH_ALLOC_CONF) holds something that this torch does not accept. Depending on the release it stops at import (SIGABRT), or at the first use of CUDA.",
    how_decided="The parser's own error text. A key that exists in other releases means that this one is too old; a key with = in it means a wrong separator; any other key is compared with the known ones.",
    not_to_confuse_with="conf-ineffective (accepted and ignored), conf-unsupported-platform. A CPU build accepts unknown keys silently, so its silence proves nothing.",
    remedies=("RX-CONFFIX", "RX-ENVNAME"),
    references=(
        "c10/core/AllocatorConfig.cpp",
        "c10/cuda/CUDAAllocatorConfig.cpp",
        "allocator-spec 6",
    ),
    judge=judge,
)
