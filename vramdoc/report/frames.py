"""The evidence as pandas DataFrames, for people who want to go on by themselves. The one door to pandas.

Bytes stay integers. It computes nothing that ``evidence`` has not computed.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
import pandas as pd

from vramdoc.errors import MissingDependency
from vramdoc.evidence.callsites import sited_lifetimes
from vramdoc.evidence.lifetimes import BEFORE, lifetimes
from vramdoc.evidence.origin import device_of_interest, trace_of
from vramdoc.evidence.timeline import LEVELS, timeline

if TYPE_CHECKING:
    from vramdoc.report.contents import Report
    from vramdoc.snapshot.model import Snapshot


def frames(report: Report) -> dict[str, pd.DataFrame]:
    """Every table the report's evidence allows.

    Returns:
        ``facts`` always; with a snapshot ``segments``, ``blocks``, ``allocations`` (one row a life, ``started`` -1 for
        those older than the trace), and with a trace ``events`` and ``levels`` (bytes after each event).
    """
    tables = {
        "facts": pd.DataFrame(
            [(f.name, f.value, f.unit, str(f.source), f.where) for f in report.facts],
            columns=["name", "value", "unit", "source", "where"],
        )
    }
    snapshot = (
        (report.case.oom_snapshot or report.case.snapshot) if report.case is not None else None
    )
    if snapshot is None:
        return tables
    device = device_of_interest(snapshot)
    tables |= {
        "segments": segments(snapshot),
        "blocks": blocks(snapshot),
        "allocations": allocations(snapshot, device),
    }
    if len(trace_of(snapshot, device)):
        tables |= {"events": events(snapshot, device), "levels": levels(snapshot, device)}
    return tables


def segments(snapshot: Snapshot) -> pd.DataFrame:
    """One row a segment, of all devices."""
    names = (
        "device",
        "address",
        "total_size",
        "allocated_size",
        "active_size",
        "requested_size",
        "stream",
        "segment_type",
        "is_expandable",
    )
    table = pd.DataFrame(
        [[getattr(s, name) for name in names] for s in snapshot.segments], columns=list(names)
    )
    table["pool_id"] = ["{}.{}".format(*s.segment_pool_id) for s in snapshot.segments]
    return table


def blocks(snapshot: Snapshot) -> pd.DataFrame:
    """One row a block, of all devices."""
    rows = [
        (s.device, s.address, b.address, b.size, b.requested_size, b.state)
        for s in snapshot.segments
        for b in s.blocks
    ]
    return pd.DataFrame(
        rows, columns=["device", "segment", "address", "size", "requested_size", "state"]
    )


def allocations(snapshot: Snapshot, device: int) -> pd.DataFrame:
    """One row an allocation's life on ``device``."""
    own = lifetimes(snapshot, device)
    sited = sited_lifetimes(snapshot, device, own)
    names = ("started", "given_back", "ended", "address", "requested", "size", "stream")
    table = pd.DataFrame({name: getattr(own, name) for name in names})
    table["site"] = pd.Categorical.from_codes(
        sited.site.astype(np.int64), pd.Index([str(site) for site in sited.sites])
    )
    table["older_than_the_trace"] = own.started == BEFORE
    table["live_at_the_end"] = own.ended == own.events
    return table


def events(snapshot: Snapshot, device: int) -> pd.DataFrame:
    """The trace of ``device``; ``address`` of an ``oom`` event is what the driver had free."""
    trace = trace_of(snapshot, device)
    columns = {
        name: getattr(trace, name) for name in ("address", "size", "stream", "time_us", "stack")
    }
    action = pd.Categorical.from_codes(trace.action.astype(np.int64), pd.Index(trace.actions))
    return pd.DataFrame({"action": action, **columns})


def levels(snapshot: Snapshot, device: int) -> pd.DataFrame:
    """Bytes of the four levels after each event; event -1 is the state before the first."""
    own = timeline(snapshot, device)
    return pd.DataFrame({name: getattr(own, name) for name in ("event", "time_us", *LEVELS)})


def exported(report: Report, kind: str = "csv") -> dict[str, bytes]:
    """Every table as a file's content, by file name; ``kind`` is one of ``formats.TABLES``.

    Raises:
        MissingDependency: Parquet without pyarrow.
    """
    return {f"{name}.{kind}": _content(table, kind) for name, table in frames(report).items()}


def _content(table: pd.DataFrame, kind: str) -> bytes:
    if kind == "csv":
        return bytes(table.to_csv(index=False).encode("utf-8"))
    # Values of facts are of several types; a Parquet column has one.
    mixed = [name for name in table.columns if table[name].dtype == object]
    try:
        return bytes(table.astype(dict.fromkeys(mixed, str)).to_parquet(index=False))
    except ImportError as error:
        raise MissingDependency("Parquet files need pyarrow", "pip install pyarrow") from error
