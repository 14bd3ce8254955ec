"""Stacks to the line of code worth naming: the innermost frame of the person's own project, its path cut to the project's part.

Frames of torch, of installed packages and of Python itself say how memory was taken; the person can change the line that
asked. It knows no bytes (``callsites`` sums them) and cleans no text (``printable`` does, where it is shown).
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

if TYPE_CHECKING:
    import numpy.typing as npt

    from vramdoc.snapshot.model import Frame, StackTable

OWN, LIBRARY, BACKWARD, PLUMBING, NATIVE = range(5)
"""How much a frame is worth naming, best first: the person's code; an installed package; a node of the autograd graph, which runs
on a thread of its own without Python; torch, Python and vramdoc; other native code."""

_NORMAL = re.compile(r"[\\/]+")
_INSTALLED = re.compile(r".*/(?:site|dist)-packages/", re.DOTALL)
_STANDARD = re.compile(
    r".*/python3(?:\.\d+)?t?/(?!(?:site|dist)-packages/)|.*/Lib/(?!site-packages/)", re.DOTALL
)
_PLUMBING = re.compile(r"(?:torch|functorch|torchgen|vramdoc)/")
_CHECKOUT = re.compile(r".*/(?:pytorch/torch|vramdoc/(?:workload|record))/", re.DOTALL)
"""torch and vramdoc run from their source trees."""
_RECORDER = re.compile(r"(?:.*/)?vramdoc/record/inside/")
"""Our own guards stand between the program and torch; they ask for nothing."""
_AUTOGRAD_NODE = re.compile(
    r"torch::autograd::(?:generated::)?(\w*Backward\w*|AccumulateGrad)::apply\("
)
_IS_PYTHON = re.compile(r".*\.pyw?\Z|<ipython-input.*|<stdin>\Z|<string>\Z", re.DOTALL)


@dataclass(frozen=True, slots=True, order=True)
class Site:
    """One place in source, as it is shown: ``train.py:42 (step)``."""

    path: str
    line: int
    function: str

    def __str__(self) -> str:
        return f"{self.path}:{self.line} ({self.function})" if self.line else self.path


UNKNOWN = Site("no Python stack recorded", 0, "")
"""What was allocated without a stack, or by native code alone."""
BEFORE_RECORDING = Site("allocated before the recording began", 0, "")


def worth(frame: Frame) -> int:
    """OWN, LIBRARY, BACKWARD, PLUMBING or NATIVE."""
    path = _NORMAL.sub("/", frame.filename)
    if path.startswith("<frozen"):
        return PLUMBING
    if _RECORDER.match(path):
        return NATIVE
    if not _IS_PYTHON.match(path):
        return BACKWARD if _AUTOGRAD_NODE.match(frame.name) else NATIVE
    installed = _INSTALLED.match(path)
    if installed:
        return PLUMBING if _PLUMBING.match(path, installed.end()) else LIBRARY
    if path == "<string>" or _STANDARD.match(path) or _CHECKOUT.match(path):
        return PLUMBING
    return OWN


class SiteNames:
    """Names frames; knows the folder that all of the person's own files share, and cuts it off."""

    def __init__(self, frames: Sequence[Frame]) -> None:
        paths = {_NORMAL.sub("/", frame.filename) for frame in frames if worth(frame) == OWN}
        own = sorted(path for path in paths if "/" in path)
        self._shared = _shared_folder(own)

    def site(self, frame: Frame) -> Site:
        """The place of one frame."""
        node = _AUTOGRAD_NODE.match(frame.name)
        if node is not None:
            return Site(f"backward pass, {node[1]}", 0, "")
        return Site(self._cut(frame.filename), frame.line, frame.name)

    def _cut(self, filename: str) -> str:
        path = _NORMAL.sub("/", filename)
        for pattern in (_INSTALLED, _STANDARD):
            found = pattern.match(path)
            if found:
                return path[found.end() :]
        if self._shared and path.startswith(self._shared):
            return path[len(self._shared) :]
        return "/".join(path.split("/")[-2:])


def _shared_folder(paths: Sequence[str]) -> str:
    """The longest folder that holds all ``paths``; empty when cutting it would leave somebody's home folder visible."""
    if not paths:
        return ""
    first, last = paths[0].split("/")[:-1], paths[-1].split("/")[:-1]
    depth = next(
        (i for i, (a, b) in enumerate(zip(first, last, strict=False)) if a != b),
        min(len(first), len(last)),
    )
    # "/home/name/x.py" splits into "", "home", "name", "x.py": anything shallower than the home would show it.
    return "/".join(first[:depth]) + "/" if depth >= 3 or len(paths) == 1 else ""


def sites_of_stacks(table: StackTable) -> tuple[tuple[Site, ...], npt.NDArray[np.int32]]:
    """The site worth naming of every stack.

    Returns:
        Distinct sites, and for each stack code the index of its site.
    """
    names = SiteNames(table.frames)
    rank = np.array([worth(frame) for frame in table.frames], np.int64)
    sites: dict[Site, int] = {UNKNOWN: 0}
    code_of_frame = np.array(
        [
            0 if rank[i] == NATIVE else sites.setdefault(names.site(frame), len(sites))
            for i, frame in enumerate(table.frames)
        ],
        np.int32,
    )
    if not len(table):
        return tuple(sites), np.empty(0, np.int32)
    # Of each stack the innermost frame (lowest position) among those most worth naming (lowest rank).
    width = len(table.indices) + 1
    order = rank[table.indices] * width + np.arange(len(table.indices))
    best = np.minimum.reduceat(order, table.ends[:-1])
    return tuple(sites), code_of_frame[table.indices[best % width]]


def site_of_frames(frames: Sequence[Frame], names: SiteNames) -> Site:
    """The site worth naming of one stack."""
    best = min(frames, key=worth, default=None)
    return UNKNOWN if best is None or worth(best) == NATIVE else names.site(best)
