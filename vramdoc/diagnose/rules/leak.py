"""leak: memory that nothing needs any more is kept, step after step."""

from __future__ import annotations

from itertools import pairwise

from vramdoc.crashlog.incident import CrashLog
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
from vramdoc.diagnose.failing import figures, growth_told, size, unnumbered
from vramdoc.diagnose.regrown import is_cache, regrown_facts
from vramdoc.diagnose.remarks import remarks
from vramdoc.diagnose.rule import Rule
from vramdoc.diagnose.shortage import shortage
from vramdoc.diagnose.verdict import Confidence, Severity, Verdict
from vramdoc.evidence.case import Case
from vramdoc.facts import Fact

ID = "leak"
_COLLECTORS = (
    # (function of the innermost frame, words in its source line, what is collected)
    ("nested_concat", "", "predictions of every evaluation batch are concatenated on the device until the evaluation ends"),
    ("evaluation_loop", "concat", "predictions of every evaluation batch are concatenated on the device until the evaluation ends"),
    ("gather_for_metrics", "cat", "predictions are gathered on the device for the metrics"),
    ("", "all_preds", "predictions are collected on the device"),
    ("", "all_logits", "logits of every batch are collected on the device"),
    ("", "all_outputs", "outputs of every batch are collected on the device"),
    ("", "preds_host", "predictions of every evaluation batch are concatenated on the device until the evaluation ends"),
    ("", "total_loss +=", "a loss is summed with its graph"),
    ("", "loss_history", "losses are kept with their graphs"),
)  # fmt: skip
FEWEST_LINES = 5
"""Logged figures needed for a trend; the first steps fill caches."""
STEADY = 0.8
"""Share of them that must rise, as for measured growth (``evidence.growth``)."""
GROWN = 1.5
"""Last over first: optimizer state and caches of the first steps add less."""
_INNERMOST = 3
"""Frames looked at: the collector, or the torch functions it calls."""


def judge(case: Case) -> Verdict:
    """Confirm from growth that was measured, or from a traceback that ends in a collector."""
    if regrown := _regrown(case):
        return regrown
    if case.growth is not None and case.growth.steps_are_marked and case.growth.sites:
        return _measured(case)
    log = case.crash
    if log is None:
        return ruled_out(
            ID, "No growth from step to step is in evidence.", confidence=Confidence.LOW
        )
    found = shortage(case)
    failed = found is not None or unnumbered(case) is not None
    if (failed or not log.incidents) and (collected := _collector(log)):
        frame, what = collected
        return confirmed(
            ID,
            f"The traceback ends where {what}: memory grows with every batch."
            + ("" if failed else " Its last line, the error itself, is missing from the text."),
            [frame],
            confidence=Confidence.MEDIUM if failed else Confidence.LOW,
            notes=[
                "Reduce what is kept of each batch (argmax instead of logits, preprocess_logits_for_metrics), or move it to the CPU as you go (eval_accumulation_steps)."
            ],
        )
    if logged := _logged(log):
        return logged
    if failed and (told := growth_told(log, "per step")):
        return undecided(
            ID,
            "Memory is reported to rise from step to step. Tensors that are kept do that; so do longer batches and a pool that splinters.",
            [
                "which line of code holds what grows: a recording (vramdoc record -- python your_script.py)"
            ],
            evidence=[quote(told, "reported_growth")],
            severity=Severity.WARNING,
        )
    if failed:
        return undecided(
            ID,
            "One moment does not show growth.",
            ["memory at several steps: a recording, or whether the same step works at first"],
            severity=Severity.WARNING,
        )
    if text_is_silent(case):
        return undecided(ID, "The text holds no error that is known here.", [THE_ERROR])
    return ruled_out(ID, "Nothing points at memory that is kept.", confidence=Confidence.MEDIUM)


def _measured(case: Case) -> Verdict:
    growth = case.growth
    assert growth is not None, "the caller looked"
    top = growth.sites[0]
    kept = growth.per_step_bytes * growth.steps
    if growth.per_step_bytes <= 0 or top.grown_bytes < growth.grown_bytes // 2:
        return ruled_out(ID, "Live memory does not grow from step to step.")
    if growth.grown_bytes <= _cache_bytes(case):
        return ruled_out(ID, "What grows from step to step is the KV cache, which is meant to.")
    return confirmed(
        ID,
        f"Live memory grows by {size(growth.per_step_bytes)} a step over {growth.steps} steps; {size(top.grown_bytes)} of it are held by {top.site}.",
        [
            derived("growth_per_step", growth.per_step_bytes, growth.period_source),
            derived(
                "grown_at_site", top.grown_bytes, f"{top.count} live allocations at {top.site}"
            ),
        ],
        confidence=Confidence.MEDIUM,
        severity=Severity.ERROR if case.oom is not None else Severity.WARNING,
        explains=kept,
    )


def _regrown(case: Case) -> Verdict | None:
    """A tensor that is concatenated onto and is no KV cache: outputs that are collected on the device."""
    found = shortage(case)
    grown = tuple(part for part in case.regrowth if not is_cache(part, case))
    if found is None or not grown:
        return None
    top = grown[0]
    if top.last_bytes < (found.balance.short or found.balance.requested):
        return None
    return confirmed(
        ID,
        f"{top.line} builds a tensor anew, {size(top.per_step_bytes)} larger each time: from {size(top.first_bytes)} to {size(top.last_bytes)} in {top.times} steps. "
        f"Old and new copy live together; without that growth the request of {size(found.balance.requested)} would have fitted.",
        (*regrown_facts(grown[:1]), *figures(case, found, "live", "short")),
        confidence=Confidence.HIGH if top.was_refused else Confidence.MEDIUM,
        severity=Severity.ERROR if top.was_refused else Severity.WARNING,
        explains=top.last_bytes,
        notes=remarks(case, found) if top.was_refused else (),
    )


def _cache_bytes(case: Case) -> int:
    """The most that KV caches held, where the recorded workload notes it."""
    phases = case.manifest.phases if case.manifest is not None else ()
    return max((int(phase.detail.get("kv_bytes", 0)) for phase in phases), default=0)


def _logged(log: CrashLog) -> Verdict | None:
    """Memory figures that the program printed itself: rising in nearly every line, and by more than rounding."""
    used = [o.readings["used"] for o in log.observations if o.kind == "memory-use"]
    values = [int(value.value) for value in used]
    if len(values) < FEWEST_LINES:
        return None
    rises = sum(later > earlier for earlier, later in pairwise(values))
    if rises < STEADY * (len(values) - 1) or values[-1] < GROWN * values[0]:
        return None
    return confirmed(
        ID,
        f"The program's own log shows memory in use rising from {size(values[0])} to {size(values[-1])} over {len(values)} lines.",
        [cite(used[0], "used_first"), cite(used[-1], "used_last")],
        confidence=Confidence.MEDIUM,
        explains=values[-1] - values[0],
        notes=[
            "Which line of code keeps it, a recording shows: vramdoc record -- python your_script.py."
        ],
    )


def _collector(log: CrashLog) -> tuple[Fact, str] | None:
    for line in code_lines(log)[:_INNERMOST]:
        for name, words, what in _COLLECTORS:
            if name in {"", line.function} and words in line.source:
                return line.fact("collecting_line"), what
    return None


RULE = Rule(
    id=ID,
    title="Memory is kept that nothing needs any more",
    meaning=(
        "Something holds on to tensors step after step: a list of losses with their graphs, predictions collected on the device, tensors in a traceback or a closure. Each step leaves a little more until nothing is left."
    ),
    how_decided="In a recording: live bytes by line of code at equal moments of successive steps, rising in four of five; or one line whose copies each outlive the birth of the next, larger one (what concatenation does), where that growth is more than what was lacking. In a text: the traceback ends in a known collector. A single out-of-memory message leaves it open.",
    not_to_confuse_with="kv-growth, which is meant to grow; fragmentation (reserved grows, live does not); the first steps, which fill caches and optimizer state.",
    remedies=(
        "RX-COLLECT",
        "RX-OFFLOADEVAL",
        "RX-DETACH",
        "RX-CLEARWS",
    ),
    references=("transformers#17089, #7232, #8476",),
    judge=judge,
)
