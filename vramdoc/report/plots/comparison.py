"""Allocator configs beside each other: peak reserved as the bar, peak active inside it, and which ran out of memory."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from matplotlib.figure import Figure

from vramdoc.report.comparison import ConfigRow
from vramdoc.report.plots.style import Palette, byte_axis, literal
from vramdoc.units import format_bytes

MOST_ROWS = 30
"""Bars that can be read in one picture."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ComparisonPicture:
    """What the picture shows."""

    rows: Sequence[ConfigRow]
    total_bytes: int | None = None

    @property
    def height(self) -> float:
        """Inches."""
        return 1.4 + 0.34 * min(len(self.rows), MOST_ROWS)

    def draw(self, figure: Figure, palette: Palette) -> None:
        """Draw into an empty figure."""
        axes = figure.subplots()
        rows = [row for row in self.rows if row.reserved_peak is not None][:MOST_ROWS]
        places = range(len(rows))
        reserved = [row.reserved_peak or 0 for row in rows]
        bars = axes.barh(
            places, reserved, height=0.62, color=palette.idle, edgecolor=palette.text, linewidth=0.6, label="peak reserved",
            hatch=["xx" if row.oom else "" for row in rows],
        )  # fmt: skip
        axes.barh(
            places,
            [row.active_peak or 0 for row in rows],
            height=0.34,
            color=palette.used,
            label="peak active",
        )
        labels = [
            format_bytes(size) + (", out of memory" if row.oom else "")
            for size, row in zip(reserved, rows, strict=True)
        ]
        axes.bar_label(
            bars,
            labels=labels,
            padding=5,
            fontsize=8,
            bbox={"facecolor": palette.ground, "edgecolor": "none", "pad": 1},
        )
        axes.set_yticks(places, [literal(row.shown_config) for row in rows])
        axes.invert_yaxis()
        most = max([*reserved, 1])
        if self.total_bytes is not None and self.total_bytes < 2 * most:
            axes.axvline(
                self.total_bytes,
                color=palette.bad,
                linewidth=1,
                linestyle="--",
                label=f"device {format_bytes(self.total_bytes)}",
            )
            most = max(most, self.total_bytes)
        axes.set_xlim(0, most * 1.3)
        byte_axis(axes, "x")
        axes.grid(visible=True, axis="x", linewidth=0.5)
        axes.set_axisbelow(True)
        axes.set_title("The same work under each allocator config")
        figure.legend(loc="outside lower center", ncols=3, fontsize=8)
