"""A tensor that grows by copies: a KV cache by its line, else outputs that are collected; blamed only where its growth is what lacked."""

from dataclasses import replace

import pytest

from tests.crashlog.messages import GIB, MIB
from tests.diagnose.builders import manifest, message, phase, recording
from vramdoc.diagnose.engine import judge, primary
from vramdoc.evidence.attribution import Site
from vramdoc.evidence.regrowth import Regrowth
from vramdoc.prescribe.catalogue import candidates
from vramdoc.record.recording import ExitKind

FRAGMENTED = {"requested": 2, "total": 24, "free": 0.2, "allocated": 15, "unallocated": 8}
FULL = {"requested": 1, "total": 24, "free": 0.1, "allocated": 22.5, "unallocated": 0.1}


def grown(line: Site, *, last: int, refused: bool = True) -> Regrowth:
    return Regrowth(
        line=line, site=line, tensors=1, times=9, first_bytes=MIB, last_bytes=last, per_step_bytes=last // 10, was_refused=refused
    )  # fmt: skip


def case_of(part: Regrowth, **numbers):
    failed = recording(manifest(ExitKind.OUT_OF_MEMORY), oom=message(**numbers).oom)
    return replace(failed, regrowth=(part,))


COLLECTOR = Site("eval.py", 14, "evaluate")
CACHE = Site("transformers/cache_utils.py", 137, "update")


@pytest.mark.parametrize(("line", "cause"), [(COLLECTOR, "leak"), (CACHE, "kv-growth")])
@pytest.mark.parametrize("numbers", [FULL, FRAGMENTED])
def test_the_growing_line_leads_when_its_next_copy_was_refused(line, cause, numbers):
    case = case_of(grown(line, last=9 * GIB), **numbers)
    verdicts = judge(case)
    assert primary(verdicts, case) == cause
    told = next(v for v in verdicts if v.id == cause)
    assert str(line) in told.summary
    assert "921.60 MiB" in told.summary


@pytest.mark.parametrize("line", [COLLECTOR, CACHE])
def test_growth_below_the_shortage_is_not_blamed(line):
    case = case_of(grown(line, last=64 * MIB), **FULL)
    assert primary(judge(case), case) == "true-capacity"


def test_collected_outputs_are_moved_to_the_host():
    case = case_of(grown(COLLECTOR, last=9 * GIB), **FULL)
    assert candidates(judge(case), case)[0].id == "RX-COLLECT"


def test_the_formula_stands_beside_what_was_allocated():
    token = 128 << 10
    phases = (
        replace(phase("load"), allocated_bytes=4 * GIB),
        replace(phase("decode", kv_bytes=token * 8192, live_kv_bytes=token * 8192, context=8192), allocated_bytes=5 * GIB + MIB),
        phase("prefill", kv_bytes=token * 16384, live_kv_bytes=token * 24576, context=16384),
    )  # fmt: skip
    case = recording(manifest(ExitKind.OUT_OF_MEMORY, phases=phases), oom=message(**FULL).oom)
    [told] = [v for v in judge(case) if v.id == "kv-growth"]
    assert "3.00 GiB (128.00 KiB a token x 24,576 tokens), of which 1.00 GiB" in told.summary
    measured = next(fact for fact in told.evidence if fact.name == "kv_cache_measured")
    assert measured.value == GIB + MIB
    assert "by the formula 1.00 GiB" in measured.where
