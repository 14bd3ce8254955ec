"""Which contexts times how many sessions fit: one cell a pair, with the bytes it lacks where it does not."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol

from matplotlib.figure import Figure
from matplotlib.patches import Patch, Rectangle

from vramdoc.report.plots.style import Palette
from vramdoc.units import format_bytes


class Cell(Protocol):
    """One pair of the capacity grid (design section 5)."""

    @property
    def context(self) -> int:
        """Tokens a session."""

    @property
    def sessions(self) -> int:
        """Sessions at once."""

    @property
    def fits(self) -> bool:
        """Whether all of it fits."""

    @property
    def short_by(self) -> int | None:
        """Bytes it lacks; None or 0 where it fits."""


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
            colour, hatch = (palette.used, "") if cell.fits else (palette.idle, "///")
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
            lacks = (
                "fits"
                if cell.fits
                else f"-{format_bytes(cell.short_by)}"
                if cell.short_by
                else "does not fit"
            )
            box = {"facecolor": palette.ground, "edgecolor": "none", "alpha": 0.85, "pad": 1.5}
            axes.text(x, y, lacks, ha="center", va="center", fontsize=8, bbox=box)
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
                facecolor=palette.idle,
                hatch="///",
                edgecolor=palette.text,
                label="does not fit: what it lacks",
            ),
        ]
        figure.legend(handles=handles, loc="outside lower center", ncols=2, fontsize=8)
