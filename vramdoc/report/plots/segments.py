"""The segment map at two moments: every pool's bytes to scale, and the failed request beside the largest hole."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.patches import Patch

from vramdoc.report.plots.style import Palette
from vramdoc.units import format_bytes

if TYPE_CHECKING:
    from vramdoc.evidence.segment_lives import Group

CELLS = 1_200
"""Cells of a line: about one a pixel, so that merging into cells loses nothing that could be seen."""
LINES = 12
"""Lines of bytes that the largest moment fills."""
MAX_GROUPS = 6
_STATES = {
    "active_allocated": ("used", ""),
    "active_pending_free": ("pending", "////"),
    "inactive": ("idle", ""),
}
"""State of a block to its colour's name in the palette and its hatch."""
_LABELS = {"used": "used", "pending": "pending free", "idle": "idle"}

Layout = Mapping["Group", Sequence[tuple[str, int]]]


@dataclass(frozen=True, slots=True, kw_only=True)
class SegmentPicture:
    """What the picture shows: titled layouts, and bars to scale below them."""

    layouts: Sequence[tuple[str, Layout]]
    bars: Sequence[tuple[str, int, str]] = ()
    """``(name, bytes, palette colour)``: the failed request, the largest hole, what the driver had."""

    @property
    def height(self) -> float:
        """Inches: all lines of all moments, and the bars."""
        lines = sum(
            _lines(layout, self._line_bytes()) + 1.5 * len(_drawn(layout))
            for _, layout in self.layouts
        )
        return max(2.6, 0.17 * lines + 0.55 * len(self.layouts) + (0.9 if self.bars else 0.3))

    def _line_bytes(self) -> int:
        most = max((_total(layout) for _, layout in self.layouts), default=1)
        return max(1, -(-most // LINES))

    def draw(self, figure: Figure, palette: Palette) -> None:
        """Draw into an empty figure."""
        line = self._line_bytes()
        weights = [_lines(layout, line) + 1.5 * len(_drawn(layout)) for _, layout in self.layouts]
        if self.bars:
            weights.append(2.0 + len(self.bars))
        grid = figure.subplots(
            len(weights), 1, squeeze=False, height_ratios=[max(w, 2) for w in weights]
        )[:, 0]
        for axes, (title, layout) in zip(grid, self.layouts, strict=False):
            _draw_layout(axes, layout, line, palette)
            axes.set_title(
                f"{title}: {format_bytes(_total(layout))} reserved; a line is {format_bytes(line)}"
            )
        if self.bars:
            _draw_bars(grid[-1], self.bars, palette)
        handles = [
            Patch(facecolor=getattr(palette, colour), edgecolor=palette.text, linewidth=0.4, hatch=hatch, label=_LABELS[colour])
            for colour, hatch in _STATES.values()
        ]  # fmt: skip
        figure.legend(handles=handles, loc="outside lower center", ncols=3, fontsize=8)


def _total(layout: Layout) -> int:
    return sum(size for pieces in layout.values() for _, size in pieces)


def _drawn(layout: Layout) -> list[Group]:
    """The largest groups, in the layout's order."""
    held = {group: sum(size for _, size in pieces) for group, pieces in layout.items()}
    largest = sorted(held, key=lambda group: -held[group])[:MAX_GROUPS]
    return [group for group in layout if group in largest]


def _lines(layout: Layout, line: int) -> int:
    return sum(-(-sum(size for _, size in layout[group]) // line) for group in _drawn(layout))


def _draw_layout(axes: Axes, layout: Layout, line: int, palette: Palette) -> None:
    y = 0.0
    for group in _drawn(layout):
        pieces = layout[group]
        private = "private pool {}.{}, ".format(*group.pool_id) if group.is_private else ""
        stream = f", stream {group.stream:#x}" if group.stream else ""
        total = sum(size for _, size in pieces)
        axes.text(
            0,
            y + 0.95,
            f"{private}{group.pool}{stream}: {format_bytes(total)}",
            fontsize=7.5,
            va="bottom",
        )
        y += 1.1
        y = _draw_pieces(axes, _merged(pieces, max(1, line // CELLS)), line, y, palette)
        y += 0.4
    axes.set_xlim(0, line)
    axes.set_ylim(y + 0.1, 0)
    axes.axis("off")


def _merged(pieces: Sequence[tuple[str, int]], finest: int) -> list[tuple[str, int]]:
    """Neighbours of one state as one piece; what is finer than a pixel joins the piece before it."""
    merged: list[tuple[str, int]] = []
    for state, size in pieces:
        if merged and (merged[-1][0] == state or size < finest):
            merged[-1] = (merged[-1][0], merged[-1][1] + size)
        else:
            merged.append((state, size))
    return merged


def _draw_pieces(
    axes: Axes, pieces: Sequence[tuple[str, int]], line: int, y: float, palette: Palette
) -> float:
    boxes: dict[tuple[str, int], list[tuple[int, int]]] = {}
    offset = 0
    for state, size in pieces:
        end = offset + size
        while offset < end:
            row = offset // line
            stop = min(end, (row + 1) * line)
            boxes.setdefault((state, row), []).append((offset - row * line, stop - offset))
            offset = stop
    for (state, row), spans in sorted(boxes.items()):
        colour, hatch = _STATES.get(state, _STATES["active_allocated"])
        axes.broken_barh(
            spans, (y + row, 0.82), facecolors=getattr(palette, colour), hatch=hatch,
            edgecolor=palette.text if hatch else "none", linewidth=0,
        )  # fmt: skip
    return y + -(-offset // line)


def _draw_bars(axes: Axes, bars: Sequence[tuple[str, int, str]], palette: Palette) -> None:
    names = [name for name, _, _ in bars]
    sizes = [size for _, size, _ in bars]
    drawn = axes.barh(
        names, sizes, height=0.55, color=[getattr(palette, colour) for _, _, colour in bars]
    )
    axes.bar_label(drawn, labels=[format_bytes(size) for size in sizes], padding=4, fontsize=8)
    axes.set_xlim(0, max(sizes) * 1.15 + 1)
    axes.invert_yaxis()
    axes.set_xticks([])
    axes.spines[:].set_visible(False)
    axes.tick_params(length=0)
