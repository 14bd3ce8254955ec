"""Which contexts times how many sessions fit: one cell a pair, with the bytes it lacks where it does not."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from matplotlib.figure import Figure
from matplotlib.patches import Patch, Rectangle

from vramdoc.capacity.plan import Cell
from vramdoc.facts import Source
from vramdoc.report.plots.style import Palette, literal
from vramdoc.units import format_bytes

RUN = frozenset({Source.MEASURED, Source.VIRTUAL_GPU})
"""Sources of a cell that really ran; the others are computed."""


@dataclass(frozen=True, slots=True, kw_only=True)
class CapacityPicture:
    """What the picture shows."""

    cells: Sequence[Cell]
    title: str = "What fits"

    def draw(self, figure: Figure, palette: Palette) -> None:
        """Draw into an empty figure."""
        axes = figure.subplots()
        contexts = sorted({cell.context for cell in self.cells})
        sessions = sorted({cell.sessions for cell in self.cells})
        for cell in self.cells:
            x, y = contexts.index(cell.context), sessions.index(cell.sessions)
            colour, hatch = _look(cell, palette)
            axes.add_patch(
                Rectangle(
                    (x - 0.48, y - 0.46),
                    0.96,
                    0.92,
                    facecolor=colour,
                    hatch=hatch,
                    edgecolor=palette.grid,
                    linewidth=0.5,
                )
            )
            box = {"facecolor": palette.ground, "edgecolor": "none", "alpha": 0.85, "pad": 1.5}
            axes.text(x, y, _text(cell), ha="center", va="center", fontsize=8, bbox=box)
        axes.set_xticks(range(len(contexts)), [f"{context:,}" for context in contexts])
        axes.set_yticks(range(len(sessions)), [str(count) for count in sessions])
        axes.set_xlim(-0.5, max(len(contexts), 1) - 0.5)
        axes.set_ylim(-0.5, max(len(sessions), 1) - 0.5)
        axes.tick_params(length=0)
        axes.spines[:].set_visible(False)
        axes.set_xlabel("context, tokens")
        axes.set_ylabel("sessions")
        axes.set_title(self.title)
        handles = [
            Patch(facecolor=palette.used, label="fits"),
            Patch(
                facecolor=palette.pending,
                hatch="..",
                edgecolor=palette.text,
                label="fits only with another config or cache",
            ),
            Patch(
                facecolor=palette.idle,
                hatch="///",
                edgecolor=palette.text,
                label="does not fit, by how much (* really run)",
            ),
        ]
        figure.legend(handles=handles, loc="outside lower center", ncols=3, fontsize=8)


def _look(cell: Cell, palette: Palette) -> tuple[str, str]:
    """Colour and hatch."""
    if cell.fits:
        return palette.used, ""
    return (palette.pending, "..") if cell.with_config or cell.with_cache else (palette.idle, "///")


def _text(cell: Cell) -> str:
    """What is written into a cell."""
    mark = " *" if cell.source in RUN else ""
    if cell.fits:
        return f"fits{mark}"
    helper = cell.with_config or cell.with_cache
    return literal(f"with\n{helper}") if helper else f"-{format_bytes(cell.short_by)}{mark}"
