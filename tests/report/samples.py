"""Reports that every renderer is run over: ten recordings and two texts through the pipeline, and three made to hurt a renderer."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace
from functools import partial

from tests.report.recorded import NAMES, TEXTS, report_of
from vramdoc.diagnose.verdict import Confidence, Outcome, Severity, Verdict
from vramdoc.evidence.case import Case
from vramdoc.evidence.oom import OomAnatomy
from vramdoc.facts import Fact, Source
from vramdoc.report.contents import HEALTHY, Report
from vramdoc.snapshot.model import Frame, Snapshot

MIB = 1 << 20


def read(name: str, value: int, where: str = "message") -> Fact:
    """A size read from a message."""
    return Fact(name, value, "bytes", Source.READ, where)


def verdict(name: str, outcome: Outcome, summary: str, **more: object) -> Verdict:
    """A verdict with the usual severity and confidence."""
    defaults = {"severity": Severity.ERROR, "confidence": Confidence.HIGH}
    return Verdict(id=name, outcome=outcome, summary=summary, **{**defaults, **more})  # type: ignore[arg-type]


def with_stack(snapshot: Snapshot, *frames: Frame) -> Snapshot:
    """``snapshot`` with the same stack behind each of its blocks."""
    segments = tuple(
        replace(s, blocks=tuple(replace(b, frames=frames) for b in s.blocks))
        for s in snapshot.segments
    )
    return replace(snapshot, segments=segments)


def empty() -> Report:
    """As little as a Report can hold."""
    return Report(
        target_kind="snapshot", target_name="s.pickle", primary=HEALTHY, headline="Nothing failed.",
        verdicts=(), prescriptions=(), facts=(),
    )  # fmt: skip


HOSTILE = (
    "\x1b[31mred\x1b]8;;http://evil.example\x07link </details><script>alert(1)</script> <img src=x onerror=alert(2)> "
    "``` ~~~ | a | b | @everyone #1 [x](javascript:alert(3)) ![i](http://evil.example/p.png) [bold red]rich[/] "
    "&lt;b&gt; \u202egnp.exe \u200b {{ 7*7 }} {% raw %} ${7*7} \\ \r\n::error::injected\n::set-output name=a::b\x00 \ud800 末"
)


def hostile() -> Report:
    """Every foreign string tries to break out of its format."""
    base = report_of("fragmentation")
    fact = Fact("evil | name", HOSTILE, "text", Source.READ, HOSTILE)
    number = Fact("nan", float("nan"), "bytes", Source.READ, HOSTILE)
    change = base.prescriptions[0]
    change = replace(
        change, title=HOSTILE, change=HOSTILE, risk=HOSTILE, limits=HOSTILE, snippets={"bash": HOSTILE},
        verification=replace(change.verification, reason=HOSTILE, command=HOSTILE, after={"exit": HOSTILE, "oom": False}),
    )  # fmt: skip
    assert base.case is not None
    assert base.case.oom_snapshot is not None
    snapshot = with_stack(
        replace(base.case.oom_snapshot, traces=(), allocator_settings={HOSTILE: HOSTILE}),
        Frame(HOSTILE, 1, HOSTILE), Frame("</script><script>alert(4)</script>", 2, "f"),
    )  # fmt: skip
    return Report(
        target_kind=HOSTILE, target_name=HOSTILE, primary="fragmentation", headline=HOSTILE,
        verdicts=(
            verdict("fragmentation", Outcome.CONFIRMED, HOSTILE, evidence=(fact, number), notes=(HOSTILE,)),
            verdict("leak", Outcome.UNDECIDED, HOSTILE, missing=(HOSTILE,)),
        ),
        prescriptions=(change,), facts=(fact, number), environment={HOSTILE: HOSTILE, "torch": HOSTILE, "list": [HOSTILE, 1]},
        workload={"line": HOSTILE}, command=HOSTILE, notes=(HOSTILE,), missing=(HOSTILE,), recording=HOSTILE,
        case=Case(kind="snapshot", name=HOSTILE, snapshot=snapshot, oom=OomAnatomy(requested=read("requested", 1), text=HOSTILE)),
    )  # fmt: skip


def huge() -> Report:
    """Far more than fits into a ticket."""
    facts = tuple(
        Fact(f"figure_{i}", i * MIB, "bytes", Source.READ, "x" * 300) for i in range(3_000)
    )
    return replace(
        report_of("fragmentation"), headline="long " * 20_000, facts=facts, notes=("n" * 70_000,) * 3,
        verdicts=tuple(
            verdict(f"rule-{i}", Outcome.CONFIRMED, "s" * 5_000, evidence=facts[:50]) for i in range(60)
        ),
        environment={f"VAR_{i}": "v" * 2_000 for i in range(500)}, command="c" * 90_000,
    )  # fmt: skip


PIPELINE = (*NAMES, *TEXTS)
"""Samples that the pipeline made."""
SAMPLES: Mapping[str, Callable[[], Report]] = {
    **{name: partial(report_of, name) for name in PIPELINE},
    **{build.__name__: build for build in (empty, hostile, huge)},
}
