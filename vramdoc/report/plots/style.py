"""How every picture looks, and how a figure becomes bytes: the same bytes for the same figure. It draws no data."""

from __future__ import annotations

import io
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from types import MappingProxyType

import matplotlib as mpl
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from vramdoc.units import format_bytes

WIDTH, HEIGHT = 9.0, 4.2
"""Inches; at 150 dots an inch a PNG is 1350 pixels wide."""
DPI = 150


@dataclass(frozen=True, slots=True, kw_only=True)
class Palette:
    """One theme. ``used`` is far from ``idle`` in lightness, ``pending`` lies between."""

    ground: str
    text: str
    grid: str
    used: str
    pending: str
    idle: str
    bad: str
    reserved: str
    active: str
    allocated: str
    requested: str
    map: str
    """A colour map whose lightness only rises."""


THEMES: Mapping[str, Palette] = MappingProxyType(
    {
        "light": Palette(
            ground="#ffffff", text="#1b1f24", grid="#d8dee4", used="#0072b2", pending="#cc79a7", idle="#f2cf8d",
            bad="#b3261e", reserved="#1b1f24", active="#0072b2", allocated="#009e73", requested="#cc79a7", map="cividis_r",
        ),
        "dark": Palette(
            ground="#14181d", text="#e6eaee", grid="#333b44", used="#56b4e9", pending="#cc79a7", idle="#5c4a22",
            bad="#ff8a80", reserved="#e6eaee", active="#56b4e9", allocated="#3fc79a", requested="#e39ec4", map="cividis",
        ),
    }
)  # fmt: skip

Draw = Callable[[Figure, Palette], None]


def rendered(name: str, draw: Draw, *, height: float = HEIGHT) -> dict[str, bytes]:
    """Draw a figure in both themes and both formats: ``name.png``, ``name.svg``, ``name-dark.png``, ``name-dark.svg``."""
    files: dict[str, bytes] = {}
    for theme, palette in THEMES.items():
        stem = name if theme == "light" else f"{name}-{theme}"
        with mpl.rc_context(_settings(palette)):
            figure = Figure(figsize=(WIDTH, height), layout="constrained")
            draw(figure, palette)
            for kind, metadata in (
                ("png", {"Software": None}),
                ("svg", {"Date": None, "Creator": None}),
            ):
                buffer = io.BytesIO()
                figure.savefig(buffer, format=kind, dpi=DPI, metadata=metadata)
                files[f"{stem}.{kind}"] = buffer.getvalue()
                figure.set_layout_engine("none")  # laid out once, saved twice
    return files


def _settings(palette: Palette) -> dict[str, object]:
    return {
        "backend": "agg",
        "font.family": "DejaVu Sans",  # matplotlib brings it along, so a picture looks the same everywhere
        "font.size": 9,
        "axes.titlesize": 10,
        "axes.titlelocation": "left",
        "axes.spines.top": False,
        "axes.spines.right": False,
        "axes.facecolor": palette.ground,
        "figure.facecolor": palette.ground,
        "savefig.facecolor": palette.ground,
        "axes.edgecolor": palette.grid,
        "axes.labelcolor": palette.text,
        "text.color": palette.text,
        "xtick.color": palette.text,
        "ytick.color": palette.text,
        "grid.color": palette.grid,
        "legend.frameon": False,
        "hatch.linewidth": 0.6,
        "svg.fonttype": "path",
        "svg.hashsalt": "vramdoc",  # the same figure, the same bytes
        "agg.path.chunksize": 20_000,
    }


def byte_axis(axes: Axes, which: str = "y") -> None:
    """Label an axis in binary sizes, at multiples of a power of two."""
    axis = axes.yaxis if which == "y" else axes.xaxis
    low, high = axes.get_ylim() if which == "y" else axes.get_xlim()
    step = 512
    while (high - low) / step > 6:
        step *= 2
    axis.set_major_locator(mpl.ticker.MultipleLocator(step))
    axis.set_major_formatter(mpl.ticker.FuncFormatter(lambda value, _: format_bytes(round(value))))


def literal(text: str) -> str:
    """Text in which matplotlib finds no mathematics."""
    return text.replace("$", r"\$")
