"""kv-growth: the KV cache outgrows the room it has."""

from __future__ import annotations

from collections.abc import Sequence

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
from vramdoc.diagnose.failing import figures, growth_told, size, unnumbered
from vramdoc.diagnose.growing import cache_bytes, growing_cache_line, is_cache, regrown_facts
from vramdoc.diagnose.remarks import remarks
from vramdoc.diagnose.rule import Rule
from vramdoc.diagnose.shortage import STRONG_SHARE, Shortage, shortage
from vramdoc.diagnose.verdict import Confidence, Severity, Verdict
from vramdoc.evidence.case import Case
from vramdoc.evidence.source import source_of
from vramdoc.facts import Fact
from vramdoc.record.manifest import Manifest, Phase

ID = "kv-growth"
_BLOCK_TOKENS = 16
"""Tokens of one block in vLLM by default."""
_SHARE = {"vllm-no-blocks": "gpu_memory_utilization", "sglang": "--mem-fraction-static"}
_SEQUENCES = {"vllm-no-blocks": "max_num_seqs", "sglang": "--max-running-requests"}
_SAID = {
    "per turn": "Memory is reported to rise with every turn",
    "long talk": "The failure is reported to come once the conversation is long",
}
_LEADERS = (None, "true-capacity", "fragmentation")
"""Growth of this process's own tensors explains these; not memory that someone else holds."""


def judge(case: Case) -> Verdict:
    """Confirm from an engine's planning error, a cache's growth in the traceback, or the cache bytes of a recording."""
    recorded = _from_recording(case) or _regrown(case)
    if recorded is not None:
        return recorded
    log = case.crash
    if log is None:
        return ruled_out(ID, "No KV cache is in evidence.")
    if planned := log.first("engine-kv", "engine-no-kv"):
        return _engine(log, planned)
    if overflow := log.first("cache-overflow"):
        return _overflow(overflow)
    found = shortage(case)
    if found is not None and (line := growing_cache_line(log)):
        return _growing(case, found, line)
    told = growth_told(log, "per turn") or growth_told(log, "long talk")
    if found is not None and told is not None:
        return _told(case, found, told)
    if found is not None or unnumbered(case):
        return undecided(
            ID,
            "The text does not show what the request was for.",
            [
                "the traceback above the error, and whether memory rises with each turn, request or generated token"
            ],
            severity=Severity.WARNING,
        )
    if text_is_silent(case):
        return undecided(ID, "The text holds no error that is known here.", [THE_ERROR])
    return ruled_out(ID, "Nothing points at a KV cache.")


def _engine(log: CrashLog, planned: Incident) -> Verdict:
    readings = planned.readings
    if planned.kind == "engine-no-kv":
        return confirmed(
            ID,
            "After the weights and the profiling run, nothing of the engine's budget is left for its KV cache. Nothing failed to allocate: this is the engine's own planning.",
            [quote(planned)],
            notes=[
                f"More room: raise {_SHARE[planned.wording]}, shard over more GPUs, use a smaller or quantised model, or fewer concurrent sequences ({_SEQUENCES[planned.wording]})."
            ],
        )
    wanted, stored = readings.get("wanted_tokens"), readings.get("stored_tokens")
    blocks = next((o.readings["blocks"] for o in log.observations if "blocks" in o.readings), None)
    room = (
        f" ({blocks.value} blocks x {_BLOCK_TOKENS} tokens = {int(blocks.value) * _BLOCK_TOKENS})"
        if blocks and stored and int(blocks.value) * _BLOCK_TOKENS == stored.value
        else ""
    )
    bytes_ = (
        f" ({readings['wanted'].text} needed, {readings['available'].text} available)"
        if "available" in readings
        else ""
    )
    limit = f"to at most {stored.value}" if stored else "below what fits"
    return confirmed(
        ID,
        f"The room that is left for the KV cache is too small for one sequence of {wanted.value if wanted else 'that many'} tokens: "
        f"{f'{stored.value} tokens fit{room}' if stored else 'fewer fit'}{bytes_}. Nothing failed to allocate: this is the engine's own planning.",
        [*(cite(value) for value in readings.values()), *([cite(blocks)] if blocks else [])],
        notes=[
            f"Lower max_model_len {limit}, raise gpu_memory_utilization, or shard the model over more GPUs."
        ],
    )


def _overflow(overflow: Incident) -> Verdict:
    return confirmed(
        ID,
        "The conversation outgrew a cache of fixed length: a token was to be written past its end. No memory is lacking.",
        [quote(overflow), *(cite(value) for value in overflow.readings.values())],
        confidence=Confidence.MEDIUM,
        notes=[
            "Give the cache max_cache_len of at least prompt + max_new_tokens, or bound the conversation."
        ],
    )


def _growing(case: Case, found: Shortage, line: Fact) -> Verdict:
    return _outgrown(
        case,
        found,
        f"The request of {size(found.balance.requested)} that failed was for a KV cache that grows by concatenation ({line.where}): old and new copy live together, and every conversation adds to it.",
        line,
    )


def _told(case: Case, found: Shortage, told: Incident) -> Verdict:
    """A person says that it comes with the length of the talk: what the text asked for, and all that a message cannot show."""
    return _outgrown(
        case,
        found,
        f"{_SAID[told.wording]}, so it was the conversation that outgrew the room: the request of {size(found.balance.requested)} came on top of all turns before it. "
        "That is what a person says; no figure in the text shows it.",
        quote(told, "reported_growth"),
    )


def _outgrown(case: Case, found: Shortage, summary: str, sign: Fact) -> Verdict:
    """A text points at the cache: by a line of its traceback, or by what a person says."""
    leads = _leads(found)
    return confirmed(
        ID,
        summary,
        (sign, *figures(case, found, "live", "short")),
        confidence=Confidence.MEDIUM,
        severity=Severity.ERROR if leads else Severity.WARNING,
        explains=found.balance.requested,
        notes=(
            *(remarks(case, found) if leads else ()),
            "Bound the history, or allocate the cache once (static or paged).",
        ),
    )


def _leads(found: Shortage) -> bool:
    """Whether the cache's growth explains the failure, rather than the holes that it leaves or somebody else's memory."""
    return found.leading in _LEADERS and found.idle_share < STRONG_SHARE


def _from_recording(case: Case) -> Verdict | None:
    """Cache bytes by phase, as our workloads and user marks note them: by the formula, and beside it what was allocated meanwhile."""
    manifest = case.manifest
    phases = [phase for phase in manifest.phases if cache_bytes(phase)] if manifest else []
    if manifest is None or not phases:
        return None
    found = shortage(case)
    last = phases[-1] if found is not None else max(phases, key=cache_bytes)
    needed = cache_bytes(last)
    formula = _formula(last)
    taken = _measured(manifest, phases[:-1] if found is not None else phases)
    noted = formula or f"bytes of the cache's tensors in phase {last.name}"
    evidence = [derived("kv_cache", needed, noted), *taken]
    if found is None:
        return ruled_out(ID, f"The KV cache grew to {size(needed)} and fitted.", evidence)
    if needed < found.lacking:
        return ruled_out(
            ID,
            f"The KV cache takes {size(needed)}, less than what is lacking: without it the request would not fit either.",
            evidence,
        )
    leads = _leads(found)
    had = "".join(f", of which {size(int(fact.value))} were allocated," for fact in taken[:1])
    return confirmed(
        ID,
        f"The KV cache needs {size(needed)}{f' ({formula})' if formula else ''}{had} when a request of {size(found.balance.requested)} failed; without the cache it would have fitted.",
        (*evidence, *figures(case, found, "live", "short")),
        severity=Severity.ERROR if leads else Severity.WARNING,
        explains=needed,
        notes=remarks(case, found) if leads else (),
    )


def _formula(phase: Phase) -> str:
    """Bytes a token times tokens, for all conversations that were open; empty where the phase notes no tokens."""
    own, context = int(phase.detail.get("kv_bytes", 0)), int(phase.detail.get("context", 0))
    if not own or not context:
        return ""
    token = own / context
    return f"{size(round(token))} a token x {round(cache_bytes(phase) / token):,} tokens"


def _measured(manifest: Manifest, done: Sequence[Phase]) -> list[Fact]:
    """What was allocated from before the first conversation to the end of the last phase that came to its end."""
    before = [p for p in manifest.phases if p.allocated_bytes is not None and not cache_bytes(p)]
    after = [p for p in done if p.allocated_bytes is not None]
    if not before or not after:
        return []
    grown = (after[-1].allocated_bytes or 0) - (before[-1].allocated_bytes or 0)
    where = f"allocated bytes from the end of {before[-1].name} to the end of {after[-1].name}; by the formula {size(cache_bytes(after[-1]))}"
    return [derived("kv_cache_measured", grown, where, source_of(manifest))]


def _regrown(case: Case) -> Verdict | None:
    """A cache that a recorded program of any kind concatenates onto, found by its lines."""
    grown = tuple(part for part in case.regrowth if is_cache(part, case))
    found = shortage(case)
    held = sum(part.last_bytes for part in grown)
    if found is None or not grown or held < found.lacking:
        return None
    first = grown[0]
    refused = any(part.was_refused for part in grown)
    leads = _leads(found) or (refused and found.leading in _LEADERS)
    step = sum(part.per_step_bytes for part in grown)
    return confirmed(
        ID,
        f"The KV cache had grown from {size(sum(part.first_bytes for part in grown))} to {size(held)} ({size(step)} in each of {first.times} steps, at {first.line}) when a "
        f"request of {size(found.balance.requested)} failed; without that growth it would have fitted. It grows by concatenation, so old and new copy live together.",
        (*regrown_facts(grown), *figures(case, found, "live", "short")),
        confidence=Confidence.HIGH if refused else Confidence.MEDIUM,
        severity=Severity.ERROR if leads else Severity.WARNING,
        explains=held,
        notes=remarks(case, found) if leads else (),
    )


RULE = Rule(
    id=ID,
    title="The KV cache outgrows the room it has",
    meaning=(
        "Keys and values of every token of every live conversation stay on the device: 128 KiB a token for an 8B model of Llama 3's shape, so 16 GiB at 128 k tokens. A cache that grows by concatenation also "
        "leaves holes; an engine plans a fixed room for it and refuses to start when one sequence does not fit."
    ),
    how_decided=(
        "The engine's own message with its token counts; a cat onto a cache in the traceback of an out-of-memory error; a write past the end of a cache of fixed length; a person's sentence that the GPU's memory rises with every turn, or that it runs out once the conversation is long, beside a request that failed; or, in a recording, cache bytes at least as large as the shortage: noted by our workloads, or measured as copies of one line that each outlive the birth of the next, larger one. "
        "It leads unless memory outside this process's tensors, or idle cache of 10 % and more, explains the failure."
    ),
    not_to_confuse_with="true-capacity at load, leak (memory that nothing needs any more). From a message without traceback it cannot be told.",
    remedies=(
        "RX-ENGINEMORE",
        "RX-MAXLEN",
        "RX-STATIC",
        "RX-SLIDE",
        "RX-KVQUANT",
        "RX-KVOFFLOAD",
        "RX-PAGED",
        "RX-CHUNK",
    ),
    references=("transformers cache_utils.py", "failure-pattern catalogue 4"),
    judge=judge,
)
