"""Memory over time: the four levels, the phases, and where it failed."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING

import matplotlib.ticker
from matplotlib.figure import Figure

from vramdoc.report.plots.style import Palette, byte_axis, literal
from vramdoc.units import format_bytes

if TYPE_CHECKING:
    from collections.abc import Sequence

    from vramdoc.evidence.timeline import Timeline
    from vramdoc.record.manifest import Phase

ROWS = 4_000
"""Points of a curve: about three for every pixel of the picture."""
NAME = 0.009
"""Part of the axis that one letter of a phase's name takes."""
_LINES = (
    ("reserved", "-", 1.8),
    ("active", "-", 1.1),
    ("allocated", "--", 1.0),
    ("requested", ":", 1.0),
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Moment:
    """Something to mark: after which event, and its label."""

    event: int
    label: str


@dataclass(frozen=True, slots=True, kw_only=True)
class UsagePicture:
    """What the picture shows."""

    levels: Timeline
    failure: Moment | None
    phases: Sequence[Phase] = ()
    total_bytes: int | None = None
    """Of the device, drawn as a line where it is within reach of the curves."""

    def draw(self, figure: Figure, palette: Palette) -> None:
        """Draw into an empty figure."""
        axes = figure.subplots()
        thin = self.levels.downsampled(ROWS)
        place, label = self._places()
        x = [place(int(event)) for event in thin.event]
        axes.fill_between(
            x,
            thin.active,
            thin.reserved,
            step="post",
            color=palette.idle,
            alpha=0.6,
            linewidth=0,
            label="reserved, not active",
        )
        for name, style, width in _LINES:
            axes.plot(
                x,
                getattr(thin, name),
                style,
                drawstyle="steps-post",
                color=getattr(palette, name),
                linewidth=width,
                label=name,
            )
        peak, event = self.levels.peak("active")
        axes.plot(
            [place(event)],
            [peak],
            "v",
            color=palette.active,
            markersize=6,
            label=f"peak active {format_bytes(peak)}",
        )
        top = int(self.levels.reserved.max())
        if self.total_bytes is not None and self.total_bytes < 2.5 * max(top, 1):
            axes.axhline(
                self.total_bytes,
                color=palette.text,
                linewidth=0.8,
                linestyle=(0, (1, 2)),
                label=f"device {format_bytes(self.total_bytes)}",
            )
            top = max(top, self.total_bytes)
        axes.set_ylim(0, top * 1.12 + 1)
        axes.set_xlim(min(x), max(x) + (max(x) - min(x)) * 0.01 + 1e-9)
        self._marks(axes, palette, place)
        byte_axis(axes)
        axes.grid(visible=True, axis="y", linewidth=0.6)
        axes.set_xlabel(label)
        axes.set_title("Memory over time")
        figure.legend(loc="outside lower center", ncols=4, fontsize=8)

    def _places(self) -> tuple[Callable[[int], float], str]:
        """From an event to its place on the axis: its time where the release recorded times, else the event's number."""
        times = self.levels.time_us
        span = int(times[-1]) - int(times[0])
        if int(times.min()) < 0 or span == 0:
            return float, "event"
        row_of = {int(event): row for row, event in enumerate(self.levels.event)}
        unit, factor = ("seconds", 1e6) if span >= 1_000_000 else ("milliseconds", 1e3)
        return (
            lambda event: float(times[row_of[event]] - times[0]) / factor,
            f"{unit} since the first event",
        )

    def _marks(
        self, axes: matplotlib.axes.Axes, palette: Palette, place: Callable[[int], float]
    ) -> None:
        height = axes.get_ylim()[1]
        times = self.levels.time_us
        low, high = axes.get_xlim()
        free = low  # where the next phase's name has room
        for phase in self.phases:
            row = min(int(times.searchsorted(phase.started_us)), len(times) - 1)
            at = place(int(self.levels.event[row]))
            axes.axvline(at, color=palette.grid, linewidth=0.8)
            if at >= free:
                axes.annotate(
                    literal(phase.name),
                    (at, height),
                    xytext=(2, -9),
                    textcoords="offset points",
                    fontsize=7,
                )
                free = at + (high - low) * (0.012 + NAME * len(phase.name))
        if self.failure is not None:
            at = place(self.failure.event)
            axes.axvline(at, color=palette.bad, linewidth=1.4)
            axes.annotate(
                literal(self.failure.label), (at, height), xytext=(-4, -20), textcoords="offset points",
                ha="right", color=palette.bad, fontsize=8, weight="bold",
            )  # fmt: skip
