"""Every public failure text against its established cause: what was parsed, what was answered, and what the report says.

A case's folder holds ``input.txt``, perhaps a script, and ``case.toml`` with the cause and what a right answer must say. The
kinds there are coarser than our verdict ids; where they are, the id that the root cause names stands here. Whether a sentence is
said is looked up in the ticket report that the command writes: ``sentences.toml`` gives each one in our own words.
"""

from __future__ import annotations

import re
import sys
import tempfile
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from vramdoc.diagnose.verdict import Confidence
from vramdoc.evidence.case import Case
from vramdoc.examine.pipeline import examine
from vramdoc.examine.request import DiagnoseRequest
from vramdoc.examine.target import recognise_all
from vramdoc.report.contents import Report
from vramdoc.report.privacy import redact
from vramdoc.report.to_markdown import render_markdown

if sys.version_info >= (3, 11):
    import tomllib
else:
    import tomli as tomllib

ESTABLISHED = {
    # "other" and coarse kinds: the finer id of the root cause, or undecided where the cause is not established
    "018": "cublas-library-mismatch",
    "019": "ragged-batch",
    "020": "ragged-batch",
    "026": "conf-ineffective",
    "034": "memory-limit",
    "035": "undecided",
    "036": "memory-limit",
    "037": "undecided",
    "038": "undecided",
}
FROM_THE_REPORTER = ("023",)
"""The cause is not in the message but in what the reporter wrote beside it, as an issue holds both."""
_NAMES = {"cached_idle": "cached", "mps_allocated": "allocated", "max_allowed": "allowed"}
"""What ``case.toml`` calls a figure -> what the crash text's reading is called."""
_SENTENCES = tomllib.loads(Path(__file__).with_name("sentences.toml").read_text(encoding="utf-8"))
_UNSAID = re.compile(
    r"<details>\s*<summary>(?:Raw numbers|The error message).*?</details>", re.DOTALL
)
"""Parts of a report that repeat the input: what stands only there was not said."""
_ACTION = re.compile(r"^### What to do$(?P<text>.*?)(?=^###? )", re.DOTALL | re.MULTILINE)
_OF_THE_ACTION = "DO "


@dataclass(frozen=True)
class Result:
    """How one case went."""

    name: str
    expected: str
    answered: str
    confidence: str
    figures_parsed: int
    figures_printed: int
    sentences: int
    unsaid: tuple[str, ...]
    """Sentences that had to be said and were not, each with the expressions that found nothing."""
    forbidden: tuple[str, ...]
    """The same for sentences that must not be said and were."""

    @property
    def is_right(self) -> bool:
        """The established cause."""
        return self.answered == self.expected

    @property
    def is_confidently_wrong(self) -> bool:
        """Another cause, without a doubt."""
        return (
            not self.is_right
            and self.answered != "undecided"
            and self.confidence != str(Confidence.LOW)
        )


def evaluate(folder: Path) -> Result:
    """Diagnose one case as the command line does, and compare."""
    meta = tomllib.loads((folder / "case.toml").read_text(encoding="utf-8"))
    number, expect = folder.name[:3], meta["expect"]
    report = _report(folder, meta["user_context"] if number in FROM_THE_REPORTER else "")
    case = report.case
    assert case is not None, "a fresh report holds its case"
    printed = expect.get("bytes", {})
    said = Said(report)
    to_say, never = expect["must"], expect.get("must_not", [])
    words = _SENTENCES[number]
    assert len(words["must"]) == len(to_say), f"{number}: a sentence has no expression"
    assert len(words["must_not"]) == len(never), f"{number}: a sentence has no expression"
    return Result(
        name=folder.name,
        expected=ESTABLISHED.get(number, meta["kind"]),
        answered=report.primary,
        confidence=str(report.leading.confidence) if report.leading else "",
        figures_parsed=sum(_is_parsed(name, value, case) for name, value in printed.items()),
        figures_printed=len(printed),
        sentences=len(to_say) + len(never),
        unsaid=tuple(_unsaid(to_say, words["must"], said)),
        forbidden=tuple(_forbidden(never, words["must_not"], said)),
    )


class Said:
    """What a report says, for expressions to be held against."""

    def __init__(self, report: Report) -> None:
        ticket = render_markdown(redact(report))
        action = _ACTION.search(ticket)
        self._whole = _plain(_UNSAID.sub("", ticket))
        self._action = _plain(action["text"]) if action else ""

    def __contains__(self, expression: str) -> bool:
        of_action = expression.startswith(_OF_THE_ACTION)
        text = self._action if of_action else self._whole
        wanted = expression.removeprefix(_OF_THE_ACTION)
        return re.search(wanted, text, re.IGNORECASE) is not None


def _report(folder: Path, context: str) -> Report:
    """The report on the case's text and script, with the reporter's own sentence below it where the case needs that."""
    if not context:
        return _examined(folder / "input.txt")
    with tempfile.TemporaryDirectory() as made:
        beside = Path(made, "input.txt")
        beside.write_bytes((folder / "input.txt").read_bytes() + f"\n\n{context}\n".encode())
        return _examined(beside)


def _examined(path: Path) -> Report:
    return examine(DiagnoseRequest(target=recognise_all([str(path)]), trials=0))


def _plain(markdown: str) -> str:
    """The words of a Markdown text: no code marks, no table bars, no line ends."""
    return " ".join(markdown.replace("`", "").replace("|", " ").split())


def _unsaid(sentences: Sequence[str], words: Sequence[Sequence[str]], said: Said) -> Iterator[str]:
    for sentence, expressions in zip(sentences, words, strict=True):
        if silent := [e for e in expressions if e not in said]:
            yield f"{sentence!r} (no {silent})"


def _forbidden(
    sentences: Sequence[str], words: Sequence[Sequence[str]], said: Said
) -> Iterator[str]:
    for sentence, expressions in zip(sentences, words, strict=True):
        if found := [e for e in expressions if e in said]:
            yield f"{sentence!r} ({found})"


def _is_parsed(name: str, value: int, case: Case) -> bool:
    """Whether some incident carries the figure to the byte."""
    wanted = {_NAMES.get(name, name), name}
    assert case.crash is not None
    facts: Any = (
        case.oom.process.value if case.oom and case.oom.process and name == "process" else None
    )
    return facts == value or any(
        reading.value == value
        for incident in case.crash.incidents
        for key, reading in incident.readings.items()
        if key in wanted or key.startswith("process")
    )


def table(results: list[Result]) -> str:
    """One line a case, what is wrong below it, and a summary."""
    lines = [f"{'case':38}{'established':30}{'answered':30}{'conf.':8}{'bytes':>7}{'said':>7}"]
    for r in results:
        lines.append(
            f"{r.name[:36]:38}{r.expected:30}{r.answered:30}{r.confidence:8}{f'{r.figures_parsed}/{r.figures_printed}':>7}"
            f"{f'{r.sentences - len(r.unsaid) - len(r.forbidden)}/{r.sentences}':>7}"
            f"{'' if r.is_right else '  WRONG'}"
        )
        lines += [f"    not said: {u}" for u in r.unsaid]
        lines += [f"    said, though it must not be: {f}" for f in r.forbidden]
    right = sum(r.is_right for r in results)
    wrong = sum(len(r.unsaid) + len(r.forbidden) for r in results)
    sentences = sum(r.sentences for r in results)
    lines.append(
        f"\n{right} of {len(results)} as established, {sum(r.is_confidently_wrong for r in results)} confidently wrong; "
        f"{sum(r.figures_parsed for r in results)} of {sum(r.figures_printed for r in results)} printed figures to the byte; "
        f"{sentences - wrong} of {sentences} sentences said, or left unsaid, as they must be"
    )
    return "\n".join(lines)
