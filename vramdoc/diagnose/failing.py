"""The answers that rules about a failed request share: what they say when there is none, or none with figures, and what they cite."""

from __future__ import annotations

from vramdoc.crashlog.incident import CrashLog, Incident
from vramdoc.diagnose.answers import (
    THE_ERROR,
    derived,
    quote,
    ruled_out,
    text_is_silent,
    undecided,
)
from vramdoc.diagnose.moment import moment
from vramdoc.diagnose.shortage import Shortage
from vramdoc.diagnose.verdict import Severity, Verdict
from vramdoc.evidence.anatomy import NUMBERED
from vramdoc.evidence.case import Case
from vramdoc.evidence.visible import visible_requests
from vramdoc.facts import Fact, Source
from vramdoc.units import format_bytes

_OTHER_FRAMEWORKS = {"tensorflow": "TensorFlow", "jax": "JAX"}
"""Wordings of theirs -> names."""
UNNUMBERED = ("bare-oom", "nvml-assert", "mps-buffer")
"""Kinds that say that memory ran out and print no figures."""
_DEVICE_FIGURES = "the device's figures at the failure: free, total, allocated and reserved bytes (nvidia-smi, torch.cuda.memory_summary())"
_SNAPSHOT = (
    "a recording of the run (vramdoc record -- python your_script.py) or an allocator snapshot"
)
_SPEAKER = "true-capacity"
_REST = "the rest of the message: it is cut off before the free and total figures"


def without_figures(rule_id: str, case: Case) -> Verdict:
    """What a rule about failed requests says where no failed request has figures."""
    if text_is_silent(case):
        return undecided(rule_id, "The text holds no error that is known here.", [THE_ERROR])
    if bare := unnumbered(case):
        return _without_numbers(rule_id, case, bare)
    if case.oom is not None:
        return undecided(
            rule_id, "A request failed, but the message is cut off.", [_REST, _SNAPSHOT]
        )
    return ruled_out(rule_id, "No request for device memory failed.")


def _without_numbers(rule_id: str, case: Case, bare: Incident) -> Verdict:
    """One rule speaks for all of them and says what the text is; the others only that it decides nothing for them."""
    wanted = [_DEVICE_FIGURES, _SNAPSHOT]
    if rule_id != _SPEAKER:
        return undecided(
            rule_id,
            "Memory ran out, but the text prints no figures.",
            wanted,
            evidence=[quote(bare)],
            severity=Severity.WARNING,
        )
    requests = visible_requests(case)
    return undecided(
        rule_id,
        _bare_sentence(bare),
        wanted,
        evidence=[quote(bare), *requests],
        notes=[
            *(moment(case.crash) if case.crash is not None else ()),
            *(f"The text shows {fact.where}: {fact.value:,} bytes." for fact in requests),
        ],
    )


def unnumbered(case: Case) -> Incident | None:
    """The first out-of-memory text without figures, where there is none with figures."""
    if case.crash is None or case.crash.first(*NUMBERED):
        return None
    return case.crash.first(*UNNUMBERED)


def growth_told(log: CrashLog, wording: str) -> Incident | None:
    """The sentence in which a person reports growth ``per turn`` or ``per step``."""
    told = (o for o in log.observations if o.kind == "growth-told")
    return next((o for o in told if o.wording == wording), None)


def _bare_sentence(bare: Incident) -> str:
    if bare.kind == "nvml-assert":
        return (
            "This is an out-of-memory error whose own report failed: while composing the message PyTorch asks NVML for the process "
            "list, and up to torch 2.13 an NVML that does not answer (Jetson, MIG, vGPU, containers) replaces the text. "
            "No figures are available from it."
        )
    if bare.wording == "expandable-broken":
        return (
            "An expandable segment is in pieces: mapping more memory into it failed before, and from then on every request of this process fails here (pytorch#188008). "
            "The first out-of-memory error of the log is the real one; only a restart helps, and expandable_segments:False avoids it."
        )
    if bare.wording == "nccl":
        asked = f" {bare.readings['requested'].text}" if "requested" in bare.readings else " memory"
        return (
            f"NCCL asked the driver for{asked} for its communication buffers and got none. They lie outside PyTorch's pool, so what the pool keeps idle "
            "counts as used for it. The text prints no figures of the device."
        )
    if bare.wording == "tgi-warmup":
        return (
            "text-generation-inference puts this sentence in place of what its warm-up raised; releases differ in whether only an out-of-memory error is replaced or any error. "
            "The one above it in the log decides. If that is memory, lower --max-batch-prefill-tokens (and --max-batch-total-tokens)."
        )
    if bare.wording == "vllm-warmup":
        return "This is vLLM's own message in place of torch's, whose figures stand above it in the whole log: the device is full once weights and KV cache are in place."
    if bare.wording in _OTHER_FRAMEWORKS:
        return f"{_OTHER_FRAMEWORKS[bare.wording]}'s own allocator ran out of the device's memory. What it holds can be read from that framework only; beside a PyTorch process it often owns most of the device from the start."
    return "The device's memory ran out, but this wording prints no figures: it comes from the driver, often while a CUDA context or a library starts."


def figures(case: Case, found: Shortage, *names: str) -> tuple[Fact, ...]:
    """The printed figures of the failed request, then the named derived ones."""
    oom, sums = case.oom, found.balance
    assert oom is not None, "a shortage comes from an anatomy"
    printed = [
        oom.requested, oom.total, oom.free, oom.allocated, oom.unallocated, oom.reserved, oom.private_pools,
        oom.allowed, oom.process, *oom.other_processes, oom.largest_hole,
    ]  # fmt: skip
    source = oom.requested.source if oom.requested else Source.READ
    sources = {
        "reserved": (sums.reserved, "allocated + unallocated"),
        "live": (sums.live, "allocated - idle bytes of private pools"),
        "short": (sums.short, "requested - free"),
        "short_when_packed": (
            None if sums.short is None else sums.short - (sums.unallocated or 0),
            "requested - free - unallocated",
        ),
        "non_pytorch": (sums.non_pytorch, "this process - reserved"),
        "other_processes": (sums.others, "sum of the other listed processes"),
        "outside_this_allocator": (sums.outside, "total - free - reserved"),
        "unexplained": (sums.unexplained, "total - free - all listed processes"),
        "free_and_idle": (
            None if sums.free is None or sums.unallocated is None else sums.free + sums.unallocated,
            "free + unallocated",
        ),
        "live_and_request": (
            None if sums.live is None else sums.live + sums.requested,
            "live + requested",
        ),
        "neither_live_nor_free": (_rest(found), "total - allocated - free"),
        "over_limit": (sums.over_limit, "reserved + requested - allowed"),
    }
    cited = [fact for fact in printed if fact is not None]
    known = {fact.name for fact in cited}
    for name in names:
        value, formula = sources[name]
        if value is not None and name not in known:
            cited.append(derived(name, value, formula, source))
    return tuple(cited)


def _rest(found: Shortage) -> int | None:
    sums = found.balance
    if sums.total is None or sums.allocated is None or sums.free is None:
        return None
    return sums.total - sums.allocated - sums.free


def where(case: Case) -> str:
    """``GPU 1`` where the message names the device, else ``the device``."""
    device = case.oom.device if case.oom is not None else None
    return "the device" if device is None else f"GPU {device}"


def size(value: int | None) -> str:
    """Bytes for a sentence; never negative, because a difference of rounded figures can be."""
    return format_bytes(max(0, value or 0))
