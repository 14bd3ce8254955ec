"""ragged-batch: samples of unequal shape in one batch. Not a memory fault."""

from __future__ import annotations

from vramdoc.diagnose.answers import cite, confirmed, quote, ruled_out
from vramdoc.diagnose.ragged import is_bare, is_ragged
from vramdoc.diagnose.rule import Rule
from vramdoc.diagnose.verdict import Confidence, Verdict
from vramdoc.evidence.case import Case

ID = "ragged-batch"
_CHECK = 'Run once with num_workers=0: the message then is "stack expects each tensor to be equal size" and names the shapes. If it stays the same, this is not the cause.'


def judge(case: Case) -> Verdict:
    """Confirm from the stack error, or from the resize error inside a DataLoader worker."""
    log = case.crash
    if log is None:
        return ruled_out(ID, "No batch was put together.")
    if unequal := log.first("unequal-stack"):
        first, other, entry = (unequal.readings[name] for name in ("first", "other", "entry"))
        return confirmed(
            ID,
            f"Samples of one batch have different shapes: {first.text} at entry 0 and {other.text} at entry {entry.text}. This is not a question of memory.",
            [cite(first, "entry_0"), cite(other, f"entry_{entry.text}")],
            confidence=Confidence.HIGH,
        )
    incident = log.first("resize")
    if incident is not None and is_bare(log):
        return confirmed(
            ID,
            "Most likely samples of one batch have different shapes: without a traceback that shows another place, this message nearly always comes from a DataLoader worker, "
            "which puts a batch together in shared memory that cannot grow. It is not a GPU memory problem.",
            [quote(incident)],
            confidence=Confidence.LOW,
            notes=[_CHECK],
        )
    if incident is None or not is_ragged(log):
        return ruled_out(ID, "No DataLoader worker or collate function is in evidence.")
    sign = log.signs.get("collate") or log.signs["dataloader-worker"]
    return confirmed(
        ID,
        "Samples of one batch have different shapes. In a DataLoader worker the batch is put together in preallocated shared memory, which cannot grow: hence this message. It is not a GPU memory problem.",
        [quote(incident), cite(sign, "sign")],
        notes=[_CHECK],
    )


RULE = Rule(
    id=ID,
    title="Samples of unequal shape in one batch",
    meaning=(
        "The default collate function stacks samples. In a worker it allocates shared memory for all elements and shapes it after the first sample; when the first one is larger than the average, the storage would have to grow, "
        "which shared memory cannot. Otherwise, and always without workers, torch names the unequal shapes instead."
    ),
    how_decided='"stack expects each tensor to be equal size", or the resize message with a DataLoader worker or a collate function in the text, unless the innermost line of the traceback itself resizes a tensor. The message alone, without traceback or code, is most likely this: of 16 public threads with it, 10 show a batch, 2 another place, and 4 do not tell.',
    not_to_confuse_with="resize-not-resizable outside a worker; host-oom (/dev/shm too small gives a bus error).",
    remedies=("RX-COLLATE",),
    references=("torch/utils/data/_utils/collate.py", "failure-pattern catalogue 1.4"),
    judge=judge,
)
