"""Memory that is kept, by what keeps it: blamed where it is what the request lacked, and mended by the change that fits the keeper."""

from dataclasses import replace

import pytest

from tests.diagnose.builders import GIB, MIB, manifest, message, recording
from vramdoc.diagnose.engine import judge, primary
from vramdoc.diagnose.verdict import Outcome, Severity
from vramdoc.evidence.attribution import Site
from vramdoc.evidence.callsites import SiteUse
from vramdoc.evidence.growth import Growth, SiteGrowth
from vramdoc.evidence.holders import Held, Holders
from vramdoc.evidence.outlived import Outlived
from vramdoc.prescribe.catalogue import candidates
from vramdoc.record.holders import Collected, Holder, HolderKind
from vramdoc.record.recording import ExitKind

FULL = {"requested": 1, "total": 24, "free": 0.1, "allocated": 22.5, "unallocated": 0.1}
LINE = Site("train.py", 10, "step")
MENDED = {
    HolderKind.GRAPH: "RX-DETACH",
    HolderKind.CYCLE: "RX-BREAKCYCLE",
    HolderKind.TRACEBACK: "RX-DROPERROR",
    HolderKind.CONTAINER: "RX-BOUND",
}


def held(kind, size, *, graphs=0, via=""):
    holder = Holder(kind=kind, what="list `kept`", owner="train()", via=via, bytes=size, count=9,
                    graph_bytes=size if graphs else 0, graphs=graphs)  # fmt: skip
    place = Site("train.py", 31, "train")
    return Held(
        holder=holder, bytes=size, sites=(SiteUse(site=LINE, bytes=size, count=9),), place=place
    )


def case_of(*found, moment="oom", failed=True, collected=None, **parts):
    kept = Holders(
        held=found,
        moment=moment,
        live_bytes=22 * GIB,
        collected=collected,
        missing="",
    )
    kind = ExitKind.OUT_OF_MEMORY if failed else ExitKind.SUCCESS
    oom = message(**FULL).oom if failed else None
    return recording(manifest(kind), oom=oom, holders=kept, **parts)


def leak(case):
    return next(verdict for verdict in judge(case) if verdict.id == "leak")


def grown(case, size=2 * GIB):
    site = SiteGrowth(
        site=LINE, per_step_bytes=size // 10, grown_bytes=size, count=9, rising_steps=10
    )
    growth = Growth(per_step_bytes=size // 10, grown_bytes=size, steps=10, sites=(site,), period_source="phase 'step'", steps_are_marked=True)  # fmt: skip
    return replace(case, growth=growth)


@pytest.mark.parametrize("kind", [HolderKind.CYCLE, HolderKind.TRACEBACK])
def test_what_nobody_needs_leads_when_it_is_what_the_request_lacked(kind):
    case = case_of(held(kind, 2 * GIB))
    assert primary(judge(case), case) == "leak"
    assert "2.00 GiB of 22.00 GiB" in leak(case).summary
    assert "list `kept` in train() (train.py:31)" in leak(case).summary
    assert candidates(judge(case), case)[0].id == MENDED[kind]


@pytest.mark.parametrize("size", [64 * MIB, GIB])
def test_a_little_that_nobody_needs_is_no_leak(size):
    """A gigabyte would have been enough for this request, and not for the one after it."""
    case = case_of(held(HolderKind.CYCLE, size))
    assert primary(judge(case), case) == "true-capacity"


def test_much_that_nobody_needs_is_worth_a_warning_without_any_failure():
    case = case_of(held(HolderKind.TRACEBACK, 2 * GIB), moment="end", failed=False)
    assert (leak(case).outcome, leak(case).severity) == (Outcome.CONFIRMED, Severity.WARNING)


def test_garbage_at_the_end_of_a_program_is_no_leak():
    """The last function's variables are garbage once it has returned."""
    case = case_of(held(HolderKind.CYCLE, 20 * GIB), moment="end", failed=False)
    assert leak(case).outcome is Outcome.RULED_OUT


def test_a_collection_at_the_end_is_cited_as_the_measure():
    done = Collected(
        before_bytes=3 * GIB, after_bytes=GIB, found_bytes=2 * GIB, returned_bytes=2 * GIB
    )
    case = case_of(held(HolderKind.CYCLE, 2 * GIB), collected=done)
    returned = next(fact for fact in leak(case).evidence if fact.name == "returned_by_collect")
    assert returned.value == 2 * GIB
    assert "gc.collect() at the end" in returned.where


@pytest.mark.parametrize("kind", [HolderKind.CONTAINER, HolderKind.GRAPH, HolderKind.FRAME])
def test_growth_is_told_with_its_keeper_and_mended_accordingly(kind):
    graphs = 0 if kind is HolderKind.CONTAINER else 1
    case = grown(case_of(held(kind, 2 * GIB, graphs=graphs)))
    assert "kept by list `kept` in train() (train.py:31)" in leak(case).summary
    # A variable whose graph grows (total += loss) is mended as a list of losses is.
    wanted = MENDED[HolderKind.CONTAINER if kind is HolderKind.CONTAINER else HolderKind.GRAPH]
    assert candidates(judge(case), case)[0].id == wanted


def test_a_variable_in_use_is_no_keeper():
    case = grown(case_of(held(HolderKind.FRAME, 2 * GIB)))
    assert "kept by" not in leak(case).summary


@pytest.mark.parametrize(
    ("graphs", "size", "cause"),
    [(12, 14, "leak"), (1, 14, "true-capacity"), (12, 2, "true-capacity")],
)
def test_graphs_in_a_container_are_blamed_when_none_continues_another(graphs, size, cause):
    """Twelve steps' losses are; the layers of one pass are one graph, and the heads of one pass are little beside the rest."""
    case = case_of(held(HolderKind.GRAPH, size * GIB, graphs=graphs))
    assert primary(judge(case), case) == cause


def test_sessions_that_ended_and_whose_memory_did_not():
    left = Outlived(
        name="request", sessions=20, kept_sessions=19, per_session_bytes=100 * MIB, live_bytes=2 * GIB,
        sites=(SiteUse(site=LINE, bytes=2 * GIB, count=20),),
    )  # fmt: skip
    case = case_of(held(HolderKind.CONTAINER, 2 * GIB), outlived=left)
    assert primary(judge(case), case) == "leak"
    assert leak(case).summary.startswith(
        "Each request that ends leaves 100.00 MiB behind: 19 of 20"
    )
    assert candidates(judge(case), case)[0].id == "RX-BOUND"


def test_without_a_survey_the_usual_reason_comes_first():
    case = grown(replace(case_of(), holders=None))
    offered = [prescription.id for prescription in candidates(judge(case), case)]
    assert "RX-DETACH" in offered
    assert not {"RX-BREAKCYCLE", "RX-DROPERROR", "RX-BOUND"} & set(offered)
