"""What a person says of growth beside an error: that the GPU's memory rises with every turn of a conversation, or every training step.

A message shows one moment, so growth is the one thing about memory that people know and a message cannot print. Taken is one
sentence that says all three: device memory, that it rises, and with what. Host memory, denials and questions are no reports.
English and Chinese. It knows no cause, and no sentence is more than a claim.
"""

from __future__ import annotations

import re
from collections.abc import Iterator

from vramdoc.crashlog.incident import Incident

_RISES = re.compile(
    r"\b(?:rises?|rising|grow(?:s|n|ing)?|increas(?:es|ed|ing)|climbs?|climbing|goes up|going up|accumulat(?:es|ing)|piles up)\b"
    r"|增加|增长|上升|递增|累积|上涨"
)
_DEVICE = re.compile(r"\b(?:GPU|CUDA|[Vv]ideo|[Gg]raphics|[Dd]evice)\b|\bVRAM\b|\bvram\b|显存")
_SUBJECT = re.compile(r"(?:\b[Mm]emory\b|\bVRAM\b|\bvram\b|显存)[^,;:.，；：]{0,60}\Z")
"""Memory is what rises, not the loss or a counter beside it."""
_HOST = re.compile(r"\b(?:CPU|RAM|host|system|main|shared|disk)\b|内存")
_DENIED = re.compile(
    r"(?:\b(?:not|never|no longer|stops?|without|hardly|barely)\s+(?:\w+\s+)?|n't\s+(?:\w+\s+)?|(?:没有|不会|不再|没|不))\Z"
)
_ASKED = re.compile(
    r"[?？]\Z|\A\W{0,4}(?:[Dd]oes|[Dd]o|[Ii]s|[Cc]an|[Ii]f|[Ww]hether)\b|\b[Cc]heck (?:if|whether)\b|\bsee (?:if|whether)\b"
)
_WITH_EACH = (
    r"(?:\b(?:each|every|per|(?:from|by|after|over) (?:one )?{unit} (?:to|by|after)|"
    r"with (?:the )?(?:number|length) of|with more|the (?:longer|more))\b[^.]{{0,40}}?\b{unit}s?\b)"
)
_TURN = (
    r"(?:turn|round|message|question|repl(?:y|ie)|answer|conversation|dialog(?:ue)?|chat|exchange)"
)
_STEP = r"(?:step|iteration|epoch|batch|iter|forward pass)"
_UNITS = (
    # (wording, with what memory rises)
    ("per turn", re.compile(_WITH_EACH.format(unit=_TURN) + r"|每(?:一)?(?:次|轮|个)(?:对话|问答|聊天|提问|交互|回答)|(?:对话|聊天)(?:的)?(?:轮数|次数|轮次)|多轮(?:对话|问答)")),
    ("per step", re.compile(_WITH_EACH.format(unit=_STEP) + r"|每(?:一)?(?:次|轮|个)?(?:迭代|训练|epoch|batch|step)")),
)  # fmt: skip
_ENDS = re.compile(r"[!?。！？\n]|\.(?!\d)")
_REACH = 300
"""Longest sentence looked at, on either side of the verb."""


def read_told(text: str) -> Iterator[Incident]:
    """Yield each sentence that reports growth; offsets are those of ``text``."""
    if not any(word in text for word in ("emory", "VRAM", "vram", "显存")):
        return
    done = 0
    for verb in _RISES.finditer(text):
        if verb.start() < done:
            continue
        start, end = _sentence(text, verb)
        sentence = text[start:end]
        if _is_report(sentence, text[start : verb.start()]) and (wording := _unit(sentence)):
            done = end
            yield Incident(
                kind="growth-told", wording=wording, readings={}, start=start, end=end, text=sentence
            )  # fmt: skip


def _sentence(text: str, verb: re.Match[str]) -> tuple[int, int]:
    """The sentence around ``verb``, its mark included."""
    start = max(0, verb.start() - _REACH)
    for mark in _ENDS.finditer(text, start, verb.start()):
        start = mark.end()
    before = text[start : verb.start()]
    behind = _ENDS.search(text, verb.end(), verb.end() + _REACH)
    end = behind.end() if behind else min(len(text), verb.end() + _REACH)
    end -= behind is not None and behind[0] == "\n"
    return start + len(before) - len(before.lstrip()), end


def _is_report(sentence: str, before_verb: str) -> bool:
    """Device memory is said to rise: not the host's, not denied, not asked."""
    if _DENIED.search(before_verb) or _ASKED.search(sentence.rstrip()):
        return False
    return bool(_SUBJECT.search(before_verb)) and (
        bool(_DEVICE.search(sentence)) or not _HOST.search(sentence)
    )


def _unit(sentence: str) -> str | None:
    return next((wording for wording, pattern in _UNITS if pattern.search(sentence)), None)
