"""Whether a resize error comes from a DataLoader's batch of unequal samples. Two rules ask, with opposite answers."""

from __future__ import annotations

from vramdoc.crashlog.incident import CrashLog
from vramdoc.diagnose.code_lines import CodeLine, code_lines

SINKS = (".resize_(", ".resize_as_(", ".set_(", "out=")
"""What makes a storage grow (failure-pattern catalogue 1.4)."""
_ELSEWHERE = frozenset(
    {"checkpoint-load", "distributed", "fsdp", "quantization", "pin-memory", "state-dict-gather"}
)
"""Signs of places other than a batch where storages grow."""


def is_ragged(log: CrashLog) -> bool:
    """A worker or its collate function is at work: default_collate preallocates shared memory, which cannot grow.

    A dataset that resizes a tensor of its own inside a worker is another matter: then its line is the innermost one.
    """
    if log.first("resize") is None or not {"dataloader-worker", "collate"} & log.signs.keys():
        return False
    innermost = next(iter(code_lines(log)), None)
    return innermost is None or _collates(innermost) or not _grows(innermost)


def is_bare(log: CrashLog) -> bool:
    """The message stands alone: no traceback, no code, and no sign of another place where storages grow."""
    return not log.frames and not log.code and not _ELSEWHERE & log.signs.keys() and not is_ragged(log)  # fmt: skip


def growing_line(log: CrashLog) -> CodeLine | None:
    """The innermost line of the traceback that makes a storage grow."""
    return next((line for line in code_lines(log) if _grows(line)), None)


def _collates(line: CodeLine) -> bool:
    return "collate" in f"{line.file} {line.function}" or "elem.new(" in line.source


def _grows(line: CodeLine) -> bool:
    return any(sink in line.source for sink in SINKS)
