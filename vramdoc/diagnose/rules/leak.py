"""leak: memory that nothing needs any more is kept, step after step."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

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
from vramdoc.diagnose.growing import cache_bytes, growth_by_marks, is_cache, regrown_facts
from vramdoc.diagnose.kept import graphs, keeper_of, kept_facts, lost, outlived, phrase
from vramdoc.diagnose.logged import rise
from vramdoc.diagnose.remarks import remarks
from vramdoc.diagnose.rule import Rule
from vramdoc.diagnose.shortage import SEGMENT, shortage
from vramdoc.diagnose.verdict import Confidence, Severity, Verdict
from vramdoc.evidence.case import Case
from vramdoc.facts import Fact

if TYPE_CHECKING:  # it loads numpy, which judging a crash text does not need
    from vramdoc.evidence.growth import Growth

ID = "leak"
_TORCH = re.compile(r"[\\/]torch[\\/]")
_EVALUATION = (
    "predictions of every evaluation batch are concatenated on the device until the evaluation ends"
)
_LIBRARY_COLLECTORS = {
    # function of transformers, accelerate and torchmetrics that does nothing but collect: what it collects
    "nested_concat": _EVALUATION,
    "torch_pad_and_concatenate": _EVALUATION,
    "gather_for_metrics": "predictions are gathered on the device for the metrics",
    "dim_zero_cat": "a metric's states of every batch are concatenated on the device",
}
_KEPT = r"[\w.]*(?:preds?|predictions|logits|outputs?|losses|labels|targets|embeddings?|features|results|loss_history)\w*"
_KEEPS: tuple[tuple[re.Pattern[str], str], ...] = (
    (re.compile(rf"\bnested_concat\(|^{_KEPT} = [\w.]*concat\w*\("), _EVALUATION),
    (re.compile(rf"^{_KEPT}(?:\[[^\]]{{1,40}}\])?\.(?:append|extend)\("), "results of every batch are kept in a list"),
    (re.compile(r"^(?P<kept>[\w.]+) = (?:[\w.]{1,60} if (?P=kept) is None else )?torch\.(?:cat|concat|vstack)\(\s*[(\[]\s*(?P=kept)\b(?![^\n]*(?:dim|axis) ?= ?-?[1-9])(?![^\n]*[)\]], ?-?[1-9])"), "a tensor is concatenated onto itself with every batch"),
    (re.compile(r"^\w*loss\w* \+= "), "a loss is summed with its graph"),
)  # fmt: skip
"""What a line of the program's own does that keeps its tensors; looked for outside modules' forward, where lists and sums are ordinary."""
_RELEASED = (".item()", ".detach()", ".cpu()", ".numpy()", ".tolist()", "float(")
"""What is kept after one of these is a number, has no graph, or lies in host memory."""
_INNERMOST = 3
"""Frames among which a library's collector is looked for: itself, or the torch functions it calls."""


def judge(case: Case) -> Verdict:
    """Confirm from what was found to hold memory, from growth that was measured, or from a traceback that ends in a collector."""
    if kept := _regrown(case) or lost(ID, case) or outlived(ID, case) or _grown_graphs(case):
        return kept
    if growth := growth_by_marks(case):
        return _measured(case, growth)
    log = case.crash
    if log is None:
        return ruled_out(
            ID, "No growth from step to step is in evidence.", confidence=Confidence.LOW
        )
    found = shortage(case)
    failed = found is not None or unnumbered(case) is not None
    if (failed or not log.incidents) and (collected := _collector(log)):
        frame, what = collected
        # Any small request prints as one segment: then what is collected may be small too, and only part of it.
        is_small = found is not None and found.balance.requested <= SEGMENT
        return confirmed(
            ID,
            f"The traceback ends where {what}: memory grows with every batch."
            + ("" if failed else " Its last line, the error itself, is missing from the text."),
            [frame],
            confidence=Confidence.MEDIUM if failed else Confidence.LOW,
            severity=Severity.WARNING if is_small else Severity.ERROR,
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


def _measured(case: Case, growth: Growth) -> Verdict:
    top = growth.sites[0]
    kept = growth.per_step_bytes * growth.steps
    if growth.per_step_bytes <= 0 or top.grown_bytes < growth.grown_bytes // 2:
        return ruled_out(ID, "Live memory does not grow from step to step.")
    if growth.grown_bytes <= _cache_bytes(case):
        return ruled_out(ID, "What grows from step to step is the KV cache, which is meant to.")
    keeper = keeper_of(case, top.site)
    kept_by = f", and kept by {phrase(keeper[0])}" if keeper else ""
    return confirmed(
        ID,
        f"Live memory grows by {size(growth.per_step_bytes)} a step over {growth.steps} steps; {size(top.grown_bytes)} of it were allocated at {top.site}{kept_by}.",
        [
            derived("growth_per_step", growth.per_step_bytes, growth.period_source),
            derived(
                "grown_at_site", top.grown_bytes, f"{top.count} live allocations at {top.site}"
            ),
            *kept_facts("kept_by_holder", keeper, case),
        ],
        # Who keeps it is known only where the program was asked; without that, growth may be meant.
        confidence=Confidence.HIGH if keeper else Confidence.MEDIUM,
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
    if top.last_bytes < found.lacking:
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


def _grown_graphs(case: Case) -> Verdict | None:
    """Graphs in a container, where no steps are marked that would measure its growth."""
    return None if growth_by_marks(case) else graphs(ID, case)


def _cache_bytes(case: Case) -> int:
    """The most that KV caches held, where the recorded workload notes it."""
    phases = case.manifest.phases if case.manifest is not None else ()
    return max(map(cache_bytes, phases), default=0)


def _logged(log: CrashLog) -> Verdict | None:
    """Memory figures that the program printed itself: rising in nearly every line, and by more than rounding."""
    grown = rise(log)
    if grown is None:
        return None
    return confirmed(
        ID,
        f"The program's own log shows memory in use rising from {size(int(grown.first.value))} to {size(int(grown.last.value))} in {grown.lines} of its lines.",
        [cite(grown.first, "used_first"), cite(grown.last, "used_last")],
        confidence=Confidence.MEDIUM,
        explains=grown.grown_bytes,
        notes=[
            "Which line of code keeps it, a recording shows: vramdoc record -- python your_script.py."
        ],
    )


def _collector(log: CrashLog) -> tuple[Fact, str] | None:
    lines = code_lines(log)
    for line in lines[:_INNERMOST]:
        if what := _LIBRARY_COLLECTORS.get(line.function):
            return line.fact("collecting_line"), what
    own = next((n for n, (file, _, _) in enumerate(reversed(log.frames)) if not _TORCH.search(file)), None)  # fmt: skip
    if own is None or own >= len(lines):
        return None
    line = lines[own]
    if line.function == "forward" or any(word in line.source for word in _RELEASED):
        return None
    what = next((what for pattern, what in _KEEPS if pattern.search(line.source)), "")
    return (line.fact("collecting_line"), what) if what else None


RULE = Rule(
    id=ID,
    title="Memory is kept that nothing needs any more",
    meaning=(
        "Something holds on to tensors step after step: a list of losses with their graphs, predictions collected on the device, tensors in a traceback or a closure. Each step leaves a little more until nothing is left."
    ),
    how_decided="In a recording: memory that only reference cycles or tracebacks keep, found by looking through Python's objects when the request failed (nothing is collected then; a gc.collect() at the end of the program measures what of it comes back), when it is 5 % of what is live (an error when it is more than what was lacking); a container of at least four tensors with graphs of their own that holds half of what is live and more than was lacking; memory of a session that outlives it by two more ended ones; live bytes by line of code at equal moments of successive steps, rising in four of five; or one line whose copies each outlive the birth of the next, larger one (what concatenation does), where that growth is more than what was lacking. In a text: the traceback ends in a known collector, or the memory column of the program's own log rises on nearly every line. A single out-of-memory message leaves it open.",
    not_to_confuse_with="kv-growth, which is meant to grow; fragmentation (reserved grows, live does not); the first steps, which fill caches and optimizer state.",
    remedies=(
        "RX-COLLECT",
        "RX-BREAKCYCLE",
        "RX-DROPERROR",
        "RX-DETACH",
        "RX-BOUND",
        "RX-OFFLOADEVAL",
        "RX-CLEARWS",
    ),
    references=("transformers#17089, #7232, #8476",),
    judge=judge,
)
