"""A Case out of whatever the person had: a snapshot, a recording, a crash text. The one place that knows which parts come from where.

It measures nothing itself and judges nothing.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, BinaryIO

from vramdoc.errors import UnreadableInput
from vramdoc.evidence.case import Case
from vramdoc.snapshot.reader import read_snapshot

if TYPE_CHECKING:
    from vramdoc.crashlog.incident import CrashLog
    from vramdoc.evidence.ranks import RankSummary
    from vramdoc.record.holders import Survey
    from vramdoc.record.manifest import Manifest
    from vramdoc.record.recording import Recording
    from vramdoc.snapshot.model import Snapshot

NO_TRACE = (
    "the snapshot holds no trace events: peaks, lifetimes and call sites over time are unknown"
)
PARSED = "parsed"
"""Folder inside a recording for parsed forms; it may be deleted."""
NO_MANIFEST = (
    "the snapshot does not say which GPU, which torch release or which program it came from"
)


def case_from_snapshot(path: Path) -> Case:
    """Read one allocator snapshot.

    Raises:
        UnreadableInput: it cannot be read.
    """
    from vramdoc.snapshot.cache import read_snapshot_cached  # noqa: PLC0415 - numpy

    return _case_of_snapshot(path, read_snapshot_cached)


def _case_of_snapshot(path: Path, read: Callable[[Path], Snapshot]) -> Case:
    case = Case(kind="snapshot", name=path.name, snapshot=read(path), missing=(NO_MANIFEST,))
    return measured(case)


def case_from_recording(recording: Recording) -> Case:
    """Read one recording. Of several ranks the case is that of the first which ran out of memory, else of the one that stands out.

    A snapshot that cannot be read is missing, not an error: the manifest may say enough.

    Raises:
        UnreadableInput: the manifest cannot be read.
    """
    if not recording.ranks:
        # A large snapshot's parsed form stays beside it; of a thousand ranks that would be too much disk.
        return _case_of_process(recording, parsed=recording.folder / PARSED)
    processes = (recording, *recording.ranks)
    case = _case_of_ranks([partial(_case_of_process, process) for process in processes])
    return dataclasses.replace(case, name=recording.folder.name)


def case_from_snapshots(paths: Sequence[Path]) -> Case:
    """Read the snapshots of several ranks, in the order of their ranks, as one case.

    Raises:
        UnreadableInput: one of them cannot be read.
    """
    # Parsed forms of a thousand ranks would push out all others.
    case = _case_of_ranks([partial(_case_of_snapshot, path, read_snapshot) for path in paths])
    return dataclasses.replace(case, name=f"{len(paths)} snapshots")


def _case_of_ranks(read: Sequence[Callable[[], Case]]) -> Case:
    """The case that failed or stands out, with all ranks beside it.

    One case is read at a time: a rank's snapshot may be large, its summary is not.
    """
    from vramdoc.evidence.ranks import compare_ranks  # noqa: PLC0415 - numpy

    found = [summarise(read_case(), rank) for rank, read_case in enumerate(read)]
    summaries = [summary for summary in found if summary is not None]
    ranks = compare_ranks(summaries)
    failed = [summary.rank for summary in summaries if summary.failed]
    outlier = [] if ranks is None or ranks.outlier is None else [ranks.outlier.rank]
    chosen = next(iter([*failed, *outlier]), 0)
    return dataclasses.replace(read[chosen](), ranks=ranks)


def summarise(case: Case, rank: int) -> RankSummary | None:
    """Reduce a rank's case to its summary; None when it has no snapshot to measure."""
    if case.usage is None:
        return None
    from vramdoc.evidence.ranks import RankSummary  # noqa: PLC0415 - numpy

    return RankSummary(
        rank=rank,
        name=case.name,
        peak=case.usage.peak,
        end=case.usage.end,
        failed=case.oom is not None,
        sites=tuple((use.site, use.bytes) for use in case.peak_sites),
    )


def _case_of_process(recording: Recording, *, parsed: Path | None = None) -> Case:
    manifest = recording.manifest
    missing: list[str] = []
    case = Case(
        kind="recording",
        name=recording.folder.name,
        folder=recording.folder,
        manifest=manifest,
        snapshot=_readable(recording.snapshot_path, missing, parsed),
        oom_snapshot=_readable(recording.oom_snapshot_path, missing, parsed),
        crash=_crash_of(manifest),
        missing=tuple(missing),
    )
    if case.snapshot is None and case.oom_snapshot is None and not missing:
        case = dataclasses.replace(case, missing=("the run left no allocator snapshot",))
    return measured(case, _survey(recording, case))


def case_from_crash_text(source: Path | BinaryIO, *, name: str) -> Case:
    """Read one crash text from a file or a binary stream.

    Raises:
        UnreadableInput: the file cannot be read.
    """
    from vramdoc.crashlog import read_text  # noqa: PLC0415

    crash = read_text(source)
    return measured(Case(kind="crash-text", name=name, crash=crash))


def measured(case: Case, survey: Survey | None = None) -> Case:
    """``case`` with everything that can be measured from its parts, and from what held memory at the same moment.

    A failure is judged by the snapshot of that moment; the one from the end of the run shows what was left after it.
    """
    if case.crash is not None:
        from vramdoc.evidence.anatomy import anatomy_from_crash  # noqa: PLC0415 - only for a message

        case = dataclasses.replace(case, oom=anatomy_from_crash(case.crash))
    snapshot = case.oom_snapshot or case.snapshot
    return case if snapshot is None else _with_measures(case, snapshot, survey)


def _survey(recording: Recording, case: Case) -> Survey | None:
    """Of the moment that the case is judged by; one that cannot be read is as good as none."""
    try:
        return recording.survey if case.oom_snapshot is None else recording.oom_survey
    except UnreadableInput:
        return None


def _with_measures(case: Case, snapshot: Snapshot, survey: Survey | None) -> Case:
    # They load numpy, which judging a crash text does not need.
    from vramdoc.evidence.callsites import sited_lifetimes  # noqa: PLC0415
    from vramdoc.evidence.failed_request import anatomy_from_snapshot, merge_anatomy  # noqa: PLC0415
    from vramdoc.evidence.growth import growth  # noqa: PLC0415
    from vramdoc.evidence.holders import holders  # noqa: PLC0415
    from vramdoc.evidence.measure import fragmentation, usage_of  # noqa: PLC0415
    from vramdoc.evidence.origin import device_of_interest  # noqa: PLC0415
    from vramdoc.evidence.outlived import outlived  # noqa: PLC0415
    from vramdoc.evidence.pins import pins  # noqa: PLC0415
    from vramdoc.evidence.regrowth import regrowth  # noqa: PLC0415
    from vramdoc.evidence.timeline import timeline  # noqa: PLC0415

    phases = () if case.manifest is None else case.manifest.phases
    device = device_of_interest(snapshot)
    sited = sited_lifetimes(snapshot, device)
    line = timeline(snapshot, device, sited.lifetimes)
    _, peak_event = line.peak("active")
    used = usage_of(line, snapshot, case.manifest)
    unknown = used.caveat if len(line) > 1 else NO_TRACE
    return dataclasses.replace(
        case,
        usage=used,
        fragmentation=fragmentation(snapshot, device),
        oom=merge_anatomy(case.oom, anatomy_from_snapshot(snapshot, case.manifest)),
        growth=growth(snapshot, sited, phases),
        # vramdoc's own workloads keep conversations open on purpose.
        outlived=None if _is_own_workload(case) else outlived(snapshot, sited, phases),
        holders=None if survey is None else holders(survey, snapshot, sited),
        regrowth=regrowth(snapshot, sited),
        peak_sites=sited.use_after(peak_event),
        pins=pins(snapshot, sited),
        missing=(*case.missing, *([unknown] if unknown else ())),
    )


def _is_own_workload(case: Case) -> bool:
    """Whether vramdoc itself chose the work; ``record.first_manifest`` writes the two others."""
    name = "" if case.manifest is None else case.manifest.workload.get("name", "")
    return name not in {"", "script", "block"}


def _readable(path: Path | None, missing: list[str], parsed: Path | None) -> Snapshot | None:
    if path is None:
        return None
    try:
        if parsed is None:
            return read_snapshot(path)
        from vramdoc.snapshot.cache import read_snapshot_cached  # noqa: PLC0415 - numpy

        return read_snapshot_cached(path, parsed)
    except UnreadableInput as error:
        missing.append(f"{path.name} of the recording cannot be read ({error.message})")
        return None


def _crash_of(manifest: Manifest) -> CrashLog | None:
    text = manifest.exit.traceback or manifest.exit.message
    if not text:
        return None
    from vramdoc.crashlog import parse  # noqa: PLC0415

    return parse(text)
