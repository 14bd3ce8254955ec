"""Allocation sizes against lifetimes: long-lived small blocks among short-lived large ones are what pins segments."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
from matplotlib.colors import LogNorm
from matplotlib.figure import Figure
from matplotlib.ticker import FuncFormatter, LogLocator

from vramdoc.report.plots.style import Palette
from vramdoc.units import format_bytes

if TYPE_CHECKING:
    from vramdoc.evidence.lifetimes import Lifetimes

BINS = (64, 44)
"""Columns of lifetimes and rows of sizes; a cell is then about 15 pixels."""


@dataclass(frozen=True, slots=True, kw_only=True)
class LifetimePicture:
    """What the picture shows."""

    allocations: Lifetimes

    def draw(self, figure: Figure, palette: Palette) -> None:
        """Draw into an empty figure."""
        own = self.allocations
        axes = figure.subplots()
        ended = own.ended < own.events
        lives = np.maximum(own.ended - np.maximum(own.started, 0), 1)
        edges_x = np.geomspace(1, max(int(own.events), 2) + 1, BINS[0] + 1)
        edges_y = np.geomspace(512, max(int(own.size.max(initial=1024)), 1024) * 1.1, BINS[1] + 1)
        counts, _, _ = np.histogram2d(lives[ended], own.size[ended], bins=(edges_x, edges_y))
        if counts.any():
            norm = LogNorm(vmin=1, vmax=max(counts.max(), 2))
            mesh = axes.pcolormesh(
                edges_x,
                edges_y,
                np.ma.masked_equal(counts.T, 0),
                cmap=palette.map,
                norm=norm,
                rasterized=True,
            )
            figure.colorbar(mesh, ax=axes, label="allocations freed in the recording")
        axes.plot(
            lives[~ended],
            own.size[~ended],
            "^",
            color=palette.bad,
            markersize=4,
            alpha=0.6,
            linestyle="none",
            label="live at the end",
        )
        axes.set_xscale("log")
        axes.set_yscale("log", base=2)
        axes.yaxis.set_major_locator(LogLocator(base=4, numticks=12))
        axes.yaxis.set_major_formatter(FuncFormatter(lambda value, _: format_bytes(round(value))))
        axes.set_xlim(edges_x[0], edges_x[-1] * 1.1)
        axes.set_ylim(edges_y[0], edges_y[-1])
        axes.set_xlabel("lifetime in events")
        axes.set_ylabel("block size")
        axes.set_title("Sizes against lifetimes")
        axes.grid(visible=True, linewidth=0.5)
        axes.set_axisbelow(True)
        if (~ended).any():
            figure.legend(loc="outside lower center", fontsize=8)
