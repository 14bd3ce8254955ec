"""The list of GPUs that ``--gpu`` takes, for terminals and programs. It looks nothing up."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from vramdoc.record.devices import RealGpu
from vramdoc.report.to_terminal import Screen
from vramdoc.units import format_bytes
from vramdoc.virtual_gpu.catalogue import GpuModel


def gpu_rows(real: Sequence[RealGpu], virtual: Iterable[GpuModel]) -> list[dict[str, Any]]:
    """Real devices first, then virtual ones by size; plain values, sizes in bytes."""
    rows: list[dict[str, Any]] = [
        {
            "key": f"cuda:{gpu.index}",
            "kind": "real",
            "name": gpu.name,
            "total": gpu.total_bytes,
            "free": gpu.free_bytes,
            "compute_capability": gpu.compute_capability,
            "source": "NVML",
        }
        for gpu in real
    ]
    rows.extend(
        {
            "key": model.key,
            "kind": "virtual",
            "name": model.name,
            "total": model.total_bytes,
            "compute_capability": model.compute_capability,
            "multiprocessors": model.multiprocessors,
            "source": model.sources["total_bytes"],
            "sources": dict(model.sources),
        }
        for model in sorted(virtual, key=lambda model: (model.total_bytes, model.key))
    )
    return rows


def render_gpu_table(
    rows: Sequence[Mapping[str, Any]], *, width: int, colour: bool, ascii_only: bool, verbose: bool
) -> str:
    """One line a GPU; with ``verbose`` also where the total comes from."""
    screen = Screen(width=width, colour=colour, ascii_only=ascii_only)
    columns = [
        ("--gpu", "left"),
        ("kind", "left"),
        ("name", "fold"),
        ("total", "right"),
        ("cc", "right"),
    ]
    cells = [
        [
            row["key"],
            row["kind"],
            row["name"],
            format_bytes(row["total"]),
            row["compute_capability"],
        ]
        for row in rows
    ]
    if verbose:
        columns.append(("total from", "fold"))
        for line, row in zip(cells, rows, strict=True):
            line.append(row["source"])
    screen.put(screen.table(columns, cells))
    return screen.text()
