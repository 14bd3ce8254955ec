"""What holds memory is named as the program names it, by kind; and the program does not feel that somebody looked."""

import pytest

from vramdoc.record.holders import HolderKind

pytestmark = pytest.mark.virtual_gpu
MIB = 1 << 20

EVERY_KIND = """
import collections, functools, gc, torch

gc.disable()  # what is garbage stays until somebody collects

def take(mebibytes):
    return torch.empty(mebibytes << 20, dtype=torch.uint8, device="cuda")

class Told(dict):
    def told_off(self, *_):
        print("code of the program was run")
        raise RuntimeError
    __repr__ = __eq__ = __bool__ = __len__ = __iter__ = items = keys = __getattr__ = told_off

class Engine:
    sessions = Told()

class Session:
    def __init__(self, engine):
        self.engine = engine
        engine.current = self
        self.cache = [take(16)]

class Trainer:
    def __init__(self):
        self.model = torch.nn.Sequential(torch.nn.Linear(1024, 1024, device="cuda"))
        self.optimizer = torch.optim.AdamW(self.model.parameters())
        self.history = collections.deque()

    def train(self):
        losses = []
        for step in range(5):
            hidden = self.model(torch.ones(2048, 1024, device="cuda")).relu()
            losses.append(hidden.square().mean())
            self.history.append(take(3))
            try:
                self.fail()
            except ValueError as error:
                failures.append(error)
            Session(Engine())
        del hidden
        self.last = losses

    def fail(self):
        activations = take(20)
        raise ValueError("x")

@functools.lru_cache
def embed(word):
    return take(5)

def counter():
    seen = [take(6)]
    return lambda: seen

failures = []
trainer = Trainer()
trainer.train()
Engine.sessions["a"] = take(7)
embed("a")
count = counter()

def main():
    mine = take(9)
    try:
        trainer.fail()
    except ValueError:  # its traceback lives until the block is left
        before = gc.get_count()[0]
        try:
            take(1 << 20)
        except torch.OutOfMemoryError as error:
            print(gc.isenabled(), gc.get_count()[0] - before < 200)
            return str(error)

before = torch.cuda.memory_allocated()
text = main()
print(torch.cuda.memory_allocated() - before)
raise torch.OutOfMemoryError(text)
"""


@pytest.fixture(scope="module")
def survey(tmp_path_factory):
    """(the recording's survey at the error, by what is held; the survey; what the program printed)."""
    from tests.record.conftest import Recorder

    seen = Recorder(tmp_path_factory.mktemp("kinds")).run(EVERY_KIND)
    found = seen.recording.oom_survey
    assert found is not None, seen.err
    assert seen.recording.survey is None
    return {holder.what: holder for holder in found.holders}, found, seen


KINDS = {
    "list `trainer.last`": (HolderKind.GRAPH, "the main module", 80, 5),
    "deque `trainer.history`": (HolderKind.CONTAINER, "the main module", 15, 0),
    "Sequential `trainer.model`": (HolderKind.CONTAINER, "the main module", 4, 0),
    "Told `Engine.sessions`": (HolderKind.CONTAINER, "the main module", 7, 0),
    "lru_cache of `embed`": (HolderKind.CONTAINER, "the main module", 5, 0),
    "list `count.seen`": (HolderKind.CONTAINER, "the main module", 6, 0),
    "variable `mine`": (HolderKind.FRAME, "main()", 9, 0),
    "`Session.cache`": (HolderKind.CYCLE, "", 80, 0),
}


@pytest.mark.parametrize("what", KINDS)
def test_a_holder_is_named_as_the_program_names_it(survey, what: str) -> None:
    named, _, _ = survey
    kind, owner, mebibytes, graphs = KINDS[what]
    holder = named[what]
    assert (holder.kind, holder.owner, holder.graphs) == (kind, owner, graphs)
    assert mebibytes <= holder.bytes / MIB < mebibytes + 9


def test_a_container_is_shown_at_the_line_that_fills_it(survey) -> None:
    named, _, _ = survey
    lines = EVERY_KIND.splitlines()
    filled = named["deque `trainer.history`"]
    assert "self.history.append" in lines[filled.line - 1]
    assert filled.function == "train"
    assert "engine.current = self" in lines[named["`Session.cache`"].line - 1]
    assert named["`Session.cache`"].via == "`Session.engine.current` leads back to itself"


def test_tracebacks_say_whose_they_are(survey) -> None:
    _, found, _ = survey
    kept = {h.via: h for h in found.holders if h.kind is HolderKind.TRACEBACK}
    stored = kept["ValueError in list `failures` of the main module"]
    handled = kept["ValueError, which is being handled"]
    assert (stored.what, stored.owner) == ("variable `activations`", "fail()")
    assert (stored.bytes, handled.bytes) == (100 * MIB, 20 * MIB)
    assert "raise ValueError" in EVERY_KIND.splitlines()[stored.line - 1]


def test_every_byte_has_one_holder_or_is_native_codes(survey) -> None:
    _, found, _ = survey
    held = sum(holder.bytes for holder in found.holders)
    workspaces = 9 * MIB  # of cuBLAS: no Python object has them
    rests = 6 * MIB  # of blocks too small to split
    assert found.allocated_bytes - workspaces - rests <= held <= found.allocated_bytes
    blocks = [block for holder in found.holders for block in holder.blocks]
    assert len(blocks) == len(set(blocks))


def test_nothing_was_run_or_collected_and_the_counter_stands_where_it_stood(survey) -> None:
    _, _, seen = survey
    # The garbage collector is off, and what the failed call used is gone with it: nobody else held it.
    assert seen.out.splitlines() == ["False True", "0"]


def test_a_collection_at_the_end_measures_the_cycles(survey) -> None:
    _, found, _ = survey
    done = found.collected
    assert (done.found_bytes, done.returned_bytes) == (80 * MIB, 80 * MIB)
    assert done.before_bytes - done.after_bytes == 80 * MIB


def test_of_a_healthy_program_only_what_is_there_is_named(record) -> None:
    seen = record.run(
        """
        import torch
        def work():
            return torch.empty(1 << 28, dtype=torch.uint8, device="cuda")
        kept = [work()]
        for _ in range(3):
            work()
        """
    )
    (holder,) = seen.recording.survey.holders
    assert (holder.kind, holder.what, holder.bytes) == (
        HolderKind.CONTAINER,
        "list `kept`",
        1 << 28,
    )
    assert (seen.recording.survey.moment, seen.recording.survey.collected) == ("end", None)
    assert seen.recording.oom_survey is None


def test_nobody_looks_where_nobody_is_to_look(record) -> None:
    source = "import torch; kept = torch.empty(1 << 30, dtype=torch.uint8, device='cuda')"
    assert record.run(source, holders=False).recording.survey is None
