"""Every public failure text against its established cause: what was parsed, what was answered, and what the answer says.

A case's folder holds ``input.txt``, perhaps a script, and ``case.toml`` with the cause and what a right answer must say. The
kinds there are coarser than our verdict ids; where they are, the id that the root cause names stands here.
"""

from __future__ import annotations

import io
import re
import sys
from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from vramdoc.crashlog.sizes import read_size
from vramdoc.diagnose.engine import judge, primary
from vramdoc.diagnose.verdict import Confidence, Outcome, Verdict
from vramdoc.evidence.build import case_from_crash_text
from vramdoc.evidence.case import Case
from vramdoc.lint import check_paths
from vramdoc.prescribe.catalogue import candidates
from vramdoc.prescribe.prescription import Prescription
from vramdoc.units import format_bytes

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
_FIGURE = re.compile(
    r"\d+(?:\.\d+)? (?:GiB|MiB|KiB|GB|MB|bytes)|(?<![\w.])\d{2,}(?:,\d{3})*(?![\w.])"
)
_ADVICE_OF = {
    # words of a must_not sentence -> prescriptions that would say it
    "expandable_segments": ("RX-EXPANDABLE",),
    "max_split_size_mb": ("RX-MAXSPLIT",),
    "smaller batch": ("RX-BATCH",),
    "batch-size": ("RX-BATCH",),
    "smaller model": ("RX-BATCH",),
    "empty_cache": ("RX-EMPTYCACHE",),
    "driver update": ("RX-LIBS",),
    "native-allocator": ("RX-EXPANDABLE", "RX-MAXSPLIT", "RX-ROUND"),
}


@dataclass(frozen=True)
class Result:
    """How one case went."""

    name: str
    expected: str
    answered: str
    confidence: str
    figures_parsed: int
    figures_printed: int
    said: int
    to_say: int
    unsaid: tuple[str, ...]
    forbidden: tuple[str, ...]

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
    text = (folder / "input.txt").read_bytes()
    if folder.name[:3] in FROM_THE_REPORTER:
        text += f"\n\n{meta['user_context']}\n".encode()
    case = case_from_crash_text(io.BytesIO(text), name="input.txt")
    scripts = sorted(folder.glob("*.py"))
    if scripts:
        case = replace(case, violations=check_paths(scripts).violations)
    verdicts = judge(case)
    answered = primary(verdicts, case)
    proposed = candidates(verdicts, case)
    leading = next((v for v in verdicts if v.id == answered), None)
    printed = meta["expect"].get("bytes", {})
    answer = say(case, verdicts, proposed)
    figures = list(_figures(meta["expect"]["must"]))
    unsaid = tuple(figure for figure in figures if not _is_said(figure, answer))
    return Result(
        name=folder.name,
        expected=ESTABLISHED.get(folder.name[:3], meta["kind"]),
        answered=answered,
        confidence=str(leading.confidence) if leading else "",
        figures_parsed=sum(_is_parsed(name, value, case) for name, value in printed.items()),
        figures_printed=len(printed),
        said=len(figures) - len(unsaid),
        to_say=len(figures),
        unsaid=unsaid,
        forbidden=tuple(_forbidden(meta["expect"].get("must_not", []), proposed)),
    )


def say(case: Case, verdicts: list[Verdict], proposed: list[Prescription]) -> str:
    """All that a report could print, as one text."""
    parts: list[str] = []
    for verdict in verdicts:
        parts += [verdict.summary, *verdict.notes, *verdict.missing]
        for fact in verdict.evidence:
            parts.append(f"{fact.name} {_shown(fact.value, fact.unit)} {fact.where}")
    if case.crash is not None:
        for incident in case.crash.incidents:
            parts += [str(reading.text) for reading in incident.readings.values()]
    for prescription in proposed:
        parts += [prescription.change, prescription.title, *prescription.snippets.values()]
    return "\n".join(parts)


def _shown(value: Any, unit: str) -> str:
    return (
        f"{value} {format_bytes(value)} {value / (1 << 30):.2f} GiB"
        if unit == "bytes" and isinstance(value, int)
        else str(value)
    )


def _is_parsed(name: str, value: int, case: Case) -> bool:
    """Whether some incident carries the figure to the byte."""
    wanted = {_NAMES.get(name, name), name}
    assert case.crash is not None
    facts = case.oom.process.value if case.oom and case.oom.process and name == "process" else None
    return facts == value or any(
        reading.value == value
        for incident in case.crash.incidents
        for key, reading in incident.readings.items()
        if key in wanted or key.startswith("process")
    )


def _figures(sentences: list[str]) -> Iterator[str]:
    for sentence in sentences:
        yield from _FIGURE.findall(sentence)


def _is_said(figure: str, answer: str) -> bool:
    """A size counts as said in any unit within 1 %; any other number must stand there."""
    size = read_size(figure)
    if size is None or " " not in figure:
        return figure in answer or figure.replace(",", "") in answer
    return any(
        (found := read_size(text)) is not None
        and abs(found[0] - size[0]) <= max(0.01 * size[0], size[1] + found[1])
        for text in _FIGURE.findall(answer)
        if " " in text
    )


def _forbidden(must_not: list[str], proposed: list[Prescription]) -> Iterator[str]:
    """Prescriptions that say what must not be said."""
    ids = {prescription.id for prescription in proposed}
    for sentence in must_not:
        for words, advice in _ADVICE_OF.items():
            if words in sentence and re.match(r"suggest|recommend|advise|use ", sentence):
                yield from sorted(ids & set(advice))


def table(results: list[Result]) -> str:
    """One line a case, and a summary."""
    lines = [
        f"{'case':38}{'established':30}{'answered':30}{'conf.':8}{'bytes':>7}{'said':>7}  remarks"
    ]
    for r in results:
        remarks = [
            *([] if r.is_right else ["WRONG"]),
            *(f"not said: {u}" for u in r.unsaid),
            *(f"forbidden: {f}" for f in r.forbidden),
        ]
        lines.append(
            f"{r.name[:36]:38}{r.expected:30}{r.answered:30}{r.confidence:8}{f'{r.figures_parsed}/{r.figures_printed}':>7}"
            f"{f'{r.said}/{r.to_say}':>7}  {'; '.join(remarks)}".rstrip()
        )
    right = sum(r.is_right for r in results)
    lines.append(
        f"\n{right} of {len(results)} as established, {sum(r.is_confidently_wrong for r in results)} confidently wrong; "
        f"{sum(r.figures_parsed for r in results)} of {sum(r.figures_printed for r in results)} printed figures to the byte; "
        f"{sum(r.said for r in results)} of {sum(r.to_say for r in results)} figures of the must-sentences said"
    )
    return "\n".join(lines)


def confirmed(verdicts: list[Verdict]) -> list[str]:
    """Ids of the confirmed verdicts."""
    return [v.id for v in verdicts if v.outcome is Outcome.CONFIRMED]
