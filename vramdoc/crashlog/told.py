"""What a person says of growth beside an error: memory that rises with every turn or step, or a failure that comes once a talk is long.

A message shows one moment, so growth is the one thing about memory that people know and a message cannot print. Taken is one
sentence that says all three: device memory, that it rises (or runs out), and with what. Host memory, denials and questions are
no reports. English and Chinese. It knows no cause, and no sentence is more than a claim.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator

from vramdoc.crashlog.incident import Incident

_RISES = re.compile(
    r"\b(?:rises?|rising|grow(?:s|n|ing)?|increas(?:es|ed|ing)|climbs?|climbing|goes up|going up|accumulat(?:es|ing)|piles up)\b"
    r"|增加|增长|上升|递增|累积|上涨|飙升|暴涨|递涨"
)
_DEVICE = re.compile(
    r"(?<![A-Za-z])(?:GPU|CUDA|[Vv]ideo|[Gg]raphics|[Dd]evice)(?![A-Za-z])|\bVRAM\b|\bvram\b|显存"
)
_SUBJECT = re.compile(r"(?:\b[Mm]emory\b|\bVRAM\b|\bvram\b|显存|GPU ?内存)[^,;:.，；：]{0,60}\Z")
_OBJECT = re.compile(r"..(?:了|约)?\s?\d[^,;:，；：。]{0,10}显存")
"""Memory is what rises, not the loss or a counter beside it; in Chinese it may stand behind the verb, with its size."""
_HOST = re.compile(r"\b(?:CPU|RAM|host|system|main|shared|disk)\b|内存")
_DENIED = re.compile(
    r"(?:\b(?:not|never|no longer|stops?|without|hardly|barely)\s+(?:\w+\s+)?|n't\s+(?:\w+\s+)?|(?:没有|不会|不再|没|不))\Z"
)
_ASKED = re.compile(
    r"(?<!怎么处理)(?<!怎么解决)(?<!如何解决)(?<!怎么办)[?？]\Z|\A\W{0,4}(?:[Dd]oes|[Dd]o|[Ii]s|[Cc]an|[Ii]f|[Ww]hether)\b|\b[Cc]heck (?:if|whether)\b|\bsee (?:if|whether)\b"
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
    ("per turn", re.compile(_WITH_EACH.format(unit=_TURN) + r"|每(?:一)?(?:次|轮|个)(?:对话|问答|聊天|提问|交互|回答|会话)|(?:对话|聊天)(?:的)?(?:轮数|次数|轮次)|多轮(?:对话|问答|会话)"
    r"|随着[^，。；]{0,8}(?:对话|聊天|提问|问题)[^，。；]{0,8}(?:增多|增加|增长|变多)|(?:对话|聊天|问答|会话)(?:的)?过程中")),
    ("per step", re.compile(_WITH_EACH.format(unit=_STEP) + r"|每(?:一)?(?:次|轮|个)?(?:迭代|训练|epoch|batch|step)")),
)  # fmt: skip
_TALK = r"(?:conversation|convo|dialog(?:ue)?|chat|history)"
_FEW = r"(?:few|several|some|many|couple of|certain number of|\d{1,3}(?:-\d{1,3})?|two|three|four|five|six|eight|ten|twenty)"
_SAYING = r"(?:turn|message|question|repl(?:y|ie)|answer|exchange|prompt|round of (?:chat|conversation|dialog(?:ue)?))"
_LONG = re.compile(
    rf"\b{_TALK}s?\b[^.]{{0,20}}?\b(?:gets?|getting|got|becomes?|became|grows?|grew|is|are|was) (?:(?:too|very|so|really|quite|rather|a bit) )?long(?:er)?\b"
    rf"|\blong(?:er)? {_TALK}s?\b(?! template)|\bthe longer the {_TALK}\b"
    rf"|\bafter (?:an? |the )?{_FEW} (?:\w+ ){{0,2}}?{_SAYING}s\b"
    rf"|\b(?:reset|clear|delet|empty|truncat|shorten|wip)\w*\b[^.]{{0,20}}\b{_TALK}\b[^.]{{0,20}}\b(?:works?|helps?|fix(?:es|ed)?|solve[sd]?)\b"
    r"|(?:对话|聊天|历史)[^。；，不]{0,8}(?:太长|过长|变长|很长|较长|长了)|(?:几|多|若干|数|\d{1,3})(?:次|轮)(?:对话|聊天|问答|提问|交互|会话)(?:之后|以后|后)|(?:对话|聊天|问答|会话)(?:了|到|第)?(?:几|\d{1,3})(?:多)?(?:次|轮)",
    re.IGNORECASE,
)
"""A talk that is long by now, or that works again once it is cut."""
_FAILS = re.compile(
    r"\b[Oo]ut of (?:(?:CUDA|GPU|cuda|video) )?memory\b|\bOOMs?\b|\b(?:CUDA|GPU|cuda) memory (?:error|issue|problem)s?\b|爆显存|显存(?:不足|不够|溢出|爆)|OOM"
)
_ENDS = re.compile(r"[!?。！？]|\.(?!\d)|\n(?![a-z])|(?<![A-Za-z,])\n")
"""A line that ends in a word and goes on with a small letter was wrapped."""
_MOST = 200
"""Verbs looked at from either end: what stands between so many is a program's log, and people write above or below it."""
_REACH = 300
"""Longest sentence looked at, on either side of the verb."""
_VERBS = 3
"""Verbs looked at in one sentence: a person's has one or two. A line of nothing but verbs would cost minutes otherwise."""


def read_told(text: str) -> Iterator[Incident]:
    """Yield each sentence that reports growth; offsets are those of ``text``."""
    if any(word in text for word in ("emory", "VRAM", "vram", "显存", "内存")):
        yield from _reports(text, _RISES, _grows)
    if any(word in text for word in ("emory", "OOM", "显存")):
        yield from _reports(text, _FAILS, _fails_late)


def _reports(
    text: str, verbs: re.Pattern[str], judge: Callable[[str, str], str | None]
) -> Iterator[Incident]:
    """Sentences around a verb in which ``judge`` finds a report."""
    done, seen, looked = 0, 0, 0
    found = list(verbs.finditer(text))
    if len(found) > 2 * _MOST:
        found = found[:_MOST] + found[-_MOST:]
    for verb in found:
        if verb.start() < done:
            continue
        looked = looked + 1 if verb.start() < seen else 1
        if looked > _VERBS:
            continue
        start, end = _sentence(text, verb)
        seen = end
        sentence = text[start:end]
        if wording := judge(sentence, text[start : verb.start()]):
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


def _grows(sentence: str, before_verb: str) -> str | None:
    """With what device memory is said to rise: not the host's, not denied, not asked."""
    is_memory = _SUBJECT.search(before_verb) or _OBJECT.match(sentence, len(before_verb))
    if not is_memory or not _is_said(sentence, before_verb):
        return None
    return next((wording for wording, pattern in _UNITS if pattern.search(sentence)), None)


def _fails_late(sentence: str, before_verb: str) -> str | None:
    """Whether it is said to run out once the talk is long, or no more once the talk is cut."""
    is_late = _is_said(sentence, before_verb) and _LONG.search(sentence)
    return "long talk" if is_late else None


def _is_said(sentence: str, before_verb: str) -> bool:
    if _DENIED.search(before_verb) or _ASKED.search(sentence.rstrip()):
        return False
    return bool(_DEVICE.search(sentence)) or not _HOST.search(sentence)
