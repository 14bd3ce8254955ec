"""What a subject hands back: its part of the page, and the ratios that must not get worse."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from snapshots import write_snapshot


@dataclass(frozen=True, kw_only=True)
class Section:
    """One subject, measured."""

    text: str
    """Markdown below the heading."""
    ratios: Mapping[str, float] = field(default_factory=dict)
    """Name -> ours by theirs, or ours by a goal; smaller is better."""


@dataclass(frozen=True, kw_only=True)
class Options:
    """What all subjects share."""

    folder: Path
    """Where inputs lie; made when first asked for."""
    sizes: Sequence[int]
    """Events of the snapshots, ascending."""
    peers: Path
    """``bin`` folder of the environment where peers may be installed."""

    @property
    def largest(self) -> int:
        """Events of the snapshot that single figures are about; the very largest is for growth only."""
        return max(size for size in self.sizes if size <= 1_000_000)

    def snapshot(self, events: int) -> Path:
        """The seeded snapshot of this size."""
        path = self.folder / f"{events}.pickle"
        if not path.exists():
            unfinished = path.with_suffix(".unfinished")
            write_snapshot(unfinished, events)
            unfinished.rename(path)
        return path


def table(headings: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    """Markdown."""
    lines = [headings, ["---"] * len(headings), *rows]
    return "\n".join(f"| {' | '.join(line)} |" for line in lines)
