"""The line worth naming is the person's own, its path is cut to the project, and no home folder is left in it."""

import pytest

from tests.snapshot.plain import block, event, segment, snapshot
from vramdoc.evidence.attribution import (
    BACKWARD,
    BEFORE_RECORDING,
    LIBRARY,
    NATIVE,
    OWN,
    PLUMBING,
    UNKNOWN,
    SiteNames,
    worth,
)  # fmt: skip
from vramdoc.evidence.callsites import sited_lifetimes
from vramdoc.evidence.timeline import timeline
from vramdoc.snapshot.model import Frame
from vramdoc.snapshot.schema import snapshot_from_plain

OWN_LINE = {"filename": "/home/jane/project/train.py", "line": 10, "name": "step"}
OWN_MODEL = {"filename": "/home/jane/project/nets/gpt.py", "line": 7, "name": "forward"}
LINEAR = {"filename": "/home/jane/venv/lib/python3.11/site-packages/torch/nn/modules/linear.py", "line": 125, "name": "forward"}  # fmt: skip
LLAMA = {"filename": "/usr/lib/python3/dist-packages/transformers/models/llama/modeling_llama.py", "line": 5, "name": "forward"}  # fmt: skip
MALLOC = {"filename": "CUDACachingAllocator.cpp", "line": 0, "name": "malloc"}
NODE = {"filename": "??", "line": 0, "name": "torch::autograd::generated::BmmBackward0::apply(std::vector<at::Tensor>&&)"}  # fmt: skip


@pytest.mark.parametrize(
    ("filename", "name", "expected"),
    [
        ("/home/jane/project/train.py", "step", OWN),
        (r"C:\Users\jane\project\train.py", "step", OWN),
        ("train.py", "<module>", OWN),
        ("/tmp/ipykernel_71/2218.py", "<module>", OWN),
        ("<ipython-input-3-abc>", "<module>", OWN),
        (LLAMA["filename"], "forward", LIBRARY),
        (r"C:\venv\Lib\site-packages\diffusers\unet.py", "forward", LIBRARY),
        (LINEAR["filename"], "forward", PLUMBING),
        (r"C:\Python311\Lib\contextlib.py", "inner", PLUMBING),
        ("/usr/lib/python3.11/threading.py", "run", PLUMBING),
        ("<frozen importlib._bootstrap>", "_load", PLUMBING),
        ("/src/pytorch/torch/nn/modules/linear.py", "forward", PLUMBING),
        ("CUDACachingAllocator.cpp", "malloc", NATIVE),
        ("??", "clone", NATIVE),
        ("??", NODE["name"], BACKWARD),
        ("/code/vramdoc/vramdoc/record/inside/guards_casts.py", "watched", NATIVE),
    ],
)
def test_what_a_frame_is_worth(filename, name, expected):
    assert worth(Frame(filename, 1, name)) == expected


def sites(*stacks):
    """Sites of one live allocation a stack, in order."""
    blocks = [block(512 * i, 512, frames=frames) for i, frames in enumerate(stacks)]
    events = [event("alloc", 512 * i, 512, frames=frames) for i, frames in enumerate(stacks)]
    found = sited_lifetimes(snapshot_from_plain(snapshot([segment(0, blocks)], events)), 0)
    return [found.sites[code] for code in found.site]


def test_the_innermost_line_of_the_project_is_named_with_its_path_inside_the_project():
    model, train = sites([MALLOC, LINEAR, OWN_MODEL, LINEAR, OWN_LINE], [LINEAR, OWN_LINE])
    assert str(model) == "nets/gpt.py:7 (forward)"
    assert str(train) == "train.py:10 (step)"


def test_without_a_line_of_the_project_the_installed_package_is_named():
    (found,) = sites([MALLOC, LINEAR, LLAMA, LINEAR])
    assert str(found) == "transformers/models/llama/modeling_llama.py:5 (forward)"


def test_the_autograd_thread_is_named_by_its_node():
    (found,) = sites([MALLOC, NODE])
    assert str(found) == "backward pass, BmmBackward0"


def test_native_code_alone_and_no_stack_are_said_to_be_unknown():
    assert sites([MALLOC], []) == [UNKNOWN, UNKNOWN]


@pytest.mark.parametrize(
    "paths",
    [
        ["/home/jane/a.py", "/home/john/b.py"],
        ["/home/jane/train.py", "/tmp/x.py"],
        [r"C:\Users\jane\a.py", r"C:\Users\jane\sub\b.py"],
        ["/srv/a.py", "/srv/b/c.py"],
    ],
)
def test_no_path_shows_more_than_its_last_folder_when_files_lie_apart(paths):
    names = SiteNames([Frame(path, 1, "f") for path in paths])
    for path in paths:
        shown = names.site(Frame(path, 1, "f")).path
        assert "home" not in shown
        assert "Users" not in shown
        assert shown.count("/") <= 1


def test_bytes_at_the_peak_are_summed_by_site_and_add_up():
    taken = snapshot_from_plain(
        snapshot(
            [segment(0, [block(0, 4096), block(4096, 8192, "inactive")])],
            [
                event("alloc", 4096, 2000, frames=[OWN_LINE]),
                event("alloc", 8192, 1000, frames=[OWN_MODEL]),
                event("free_completed", 4096, 2000),
                event("free_completed", 8192, 1000),
            ],
        )
    )
    found = sited_lifetimes(taken, 0)
    value, peak = timeline(taken, 0).peak("active")
    uses = found.use_after(peak)
    assert [(str(use.site), use.bytes, use.count) for use in uses] == [
        (str(BEFORE_RECORDING), 4096, 1),
        ("train.py:10 (step)", 2048, 1),
        ("nets/gpt.py:7 (forward)", 1024, 1),
    ]
    assert sum(use.bytes for use in uses) == value


def test_what_is_older_than_the_trace_is_named_by_the_stack_kept_with_its_block():
    taken = snapshot_from_plain(
        snapshot([segment(0, [block(0, 512, frames=[OWN_LINE]), block(512, 512)])], [])
    )
    found = sited_lifetimes(taken, 0)
    assert {str(found.sites[code]) for code in found.site} == {
        "train.py:10 (step)",
        str(BEFORE_RECORDING),
    }
