"""Every picture is drawn in both themes and formats, the same way twice, and can be told apart without colours."""

from __future__ import annotations

from dataclasses import replace
from itertools import combinations
from xml.etree import ElementTree

import numpy as np
import pytest

from tests.report.samples import SAMPLES
from tests.report.traces import stepping_case
from vramdoc.capacity.plan import Cell
from vramdoc.facts import Source
from vramdoc.report.comparison import Comparison, ConfigRow
from vramdoc.report.contents import Report
from vramdoc.report.plots import plot_capacity, plot_comparison, plot_report
from vramdoc.report.plots.pictures import drawings
from vramdoc.report.plots.style import THEMES

NAMES = ("memory-over-time", "sizes-and-lifetimes", "segment-map")


def stepping() -> Report:
    """A report over a recording with a failure in it."""
    return replace(SAMPLES["fragmentation"](), case=stepping_case())


def in_all_kinds(names: tuple[str, ...]) -> set[str]:
    """The files of these pictures."""
    return {
        f"{name}{theme}.{kind}"
        for name in names
        for theme in ("", "-dark")
        for kind in ("png", "svg")
    }


def test_a_recording_gives_every_picture_the_same_way_twice() -> None:
    files = plot_report(stepping())
    assert files.keys() == in_all_kinds(NAMES)
    assert files == plot_report(stepping())
    for name, content in files.items():
        if name.endswith(".png"):
            assert content.startswith(b"\x89PNG")
        else:
            assert ElementTree.fromstring(content).tag.endswith("svg")


@pytest.mark.parametrize("name", SAMPLES)
def test_every_sample_is_drawn_or_left_out(name: str) -> None:
    """Planned only: ``test_golden`` draws them, and the test above turns one of each into files."""
    assert {drawing.name for drawing in drawings(SAMPLES[name]())} <= set(NAMES)


def test_a_snapshot_without_a_trace_gives_its_map_only() -> None:
    assert plot_report(SAMPLES["hostile"]()).keys() == in_all_kinds(("segment-map",))


def test_configs_and_capacity_are_drawn() -> None:
    rows = [
        ConfigRow(
            config=config, reserved_peak=peak, active_peak=1 << 20, oom=oom, device_alloc=1, device_free=0, source=Source.REPLAYED
        )
        for config, peak, oom in (("", 1 << 21, True), ("$x$:1", 1 << 20, False), ("b", None, False))
    ]  # fmt: skip
    assert plot_comparison(Comparison(rows=rows), total_bytes=1 << 21).keys() == in_all_kinds(
        ("alloc-configs",)
    )
    assert plot_comparison(Comparison(rows=rows[2:])) == {}
    run, computed = Source.VIRTUAL_GPU, Source.REPLAYED
    cells = [
        Cell(context=2048, sessions=1, fits=True, source=run, short_by=0),
        Cell(context=4096, sessions=1, fits=False, source=computed, short_by=1 << 20),
        Cell(
            context=4096,
            sessions=2,
            fits=False,
            source=run,
            short_by=5,
            with_config="a:b",
            alternative_source=run,
        ),
    ]
    assert plot_capacity(cells).keys() == in_all_kinds(("capacity",))
    assert plot_capacity([]) == {}


def linear(colour: str) -> np.ndarray:
    """Linear light of an sRGB colour."""
    values = np.array([int(colour[i : i + 2], 16) / 255 for i in (1, 3, 5)])
    return np.where(values <= 0.04045, values / 12.92, ((values + 0.055) / 1.055) ** 2.4)


def luminance(colour: str) -> float:
    """Relative luminance, as WCAG 2 defines it."""
    return float(linear(colour) @ np.array([0.2126, 0.7152, 0.0722]))


@pytest.mark.parametrize("theme", THEMES)
def test_states_of_blocks_can_be_told_apart_in_grey(theme: str) -> None:
    """Used against idle by lightness; pending lies between and is hatched as well."""
    palette = THEMES[theme]
    used, pending, idle = (luminance(c) for c in (palette.used, palette.pending, palette.idle))
    contrast = (max(used, idle) + 0.05) / (min(used, idle) + 0.05)
    assert contrast > 3
    assert min(used, idle) < pending < max(used, idle)


@pytest.mark.parametrize("theme", THEMES)
def test_colours_can_be_told_apart_without_red_or_green_cones(theme: str) -> None:
    """Machado, Oliveira and Fernandes 2009, severity 1: protanopia and deuteranopia, in linear light."""
    palette = THEMES[theme]
    protanopia = np.array(
        [
            [0.152286, 1.052583, -0.204868],
            [0.114503, 0.786281, 0.099216],
            [-0.003882, -0.048116, 1.051998],
        ]
    )
    deuteranopia = np.array(
        [
            [0.367322, 0.860646, -0.227968],
            [0.280085, 0.672501, 0.047413],
            [-0.011820, 0.042940, 0.968881],
        ]
    )
    for matrix in (protanopia, deuteranopia):
        for a, b in combinations((palette.used, palette.pending, palette.idle), 2):
            assert np.linalg.norm(matrix @ linear(a) - matrix @ linear(b)) > 0.1
