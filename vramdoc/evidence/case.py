"""Case: all that a rule may look at, built once from whatever the person had.

It holds no judgement. A part that is not there is None, and a rule that needs it answers "undecided, because X is missing".
"""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:  # a case of one kind does not pay for the readers of the others
    from vramdoc.crashlog.incident import CrashLog
    from vramdoc.evidence.callsites import SiteUse
    from vramdoc.evidence.fragmentation import Fragmentation
    from vramdoc.evidence.growth import Growth
    from vramdoc.evidence.holders import Holders
    from vramdoc.evidence.oom import OomAnatomy
    from vramdoc.evidence.outlived import Outlived
    from vramdoc.evidence.pins import Pin
    from vramdoc.evidence.ranks import Ranks
    from vramdoc.evidence.regrowth import Regrowth
    from vramdoc.evidence.usage import Usage
    from vramdoc.lint.violation import Violation
    from vramdoc.record.recording import Manifest
    from vramdoc.snapshot.model import Snapshot


@dataclass(frozen=True, slots=True, kw_only=True)
class Case:
    """Whatever evidence there is about one process on one device."""

    kind: str
    """``model``, ``model-folder``, ``snapshot``, ``recording``, ``crash-text``."""
    name: str
    manifest: Manifest | None = None
    """Of the recording: versions, config, device, workload, exit, phases, observations."""
    snapshot: Snapshot | None = None
    """At the end of the run."""
    oom_snapshot: Snapshot | None = None
    """At the out-of-memory error; the one to judge a failure by."""
    crash: CrashLog | None = None
    """From the crash text, or from the exception in the manifest."""
    usage: Usage | None = None
    """The four levels over time and at peak; of the snapshot that matters."""
    fragmentation: Fragmentation | None = None
    oom: OomAnatomy | None = None
    """The failed request against what was free, merged from message, trace and manifest; None when nothing failed."""
    growth: Growth | None = None
    """Bytes that live on from step to step, by line; None when no steps can be told apart."""
    regrowth: tuple[Regrowth, ...] = ()
    """Lines whose tensors grow by being copied into larger ones, the largest first."""
    outlived: Outlived | None = None
    """What sessions left behind after they ended; None when the program names none, or they left nothing."""
    holders: Holders | None = None
    """What kept memory alive at the moment that is judged, by the program's names; None when nobody looked."""
    peak_sites: tuple[SiteUse, ...] = ()
    """What every line holds when active memory peaks, largest first."""
    pins: tuple[Pin, ...] = ()
    """The lines that alone keep partly free segments from being returned, largest first."""
    ranks: Ranks | None = None
    """All processes of a run of several; the case itself is the one that failed or stands out."""
    violations: tuple[Violation, ...] = ()
    """What lint finds in the scripts that the person gave beside the target."""
    folder: Path | None = None
    missing: tuple[str, ...] = field(default=())
    """What could not be measured and why, in sentences."""
