"""A recording: the folder that one run left behind, and the only thing that judging needs.

    .vramdoc/20261201-101500.042-model-4f2a1b/
        manifest.json        what ran, where, under which config, how it ended
        journal.jsonl        phases, observations and notes as they came; only until the manifest holds them
        snapshot.pickle      torch.cuda.memory._snapshot() at the end
        snapshot-oom.pickle  the same at the moment of the (last) out-of-memory error, before the exception unwound
        holders.json         what held device memory at the end (or at SIGUSR1), by the program's own names
        holders-oom.json     the same at the moment of the (last) out-of-memory error
        output.log           the program's stdout and stderr, as it printed them
        exit-status          the number that the process gave to exit(); only until the manifest holds it
        fatal.log            Python's stacks at a fatal signal; only until the manifest holds them
        rank-N/...           the same layout for each further process of a multi-process run

This module reads and writes folders. It does not start programs and does not judge them.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from vramdoc.errors import UnreadableInput
from vramdoc.record.holders import Survey
from vramdoc.record.manifest import (
    MANIFEST_SCHEMA,
    DeviceInfo,
    Exit,
    ExitKind,
    Manifest,
    Observation,
    Phase,
)
from vramdoc.record.manifest_json import dump_manifest, from_json, load_manifest, to_json
from vramdoc.record.storage import write_atomically
from vramdoc.units import GIB

__all__ = [
    "MANIFEST_SCHEMA",
    "DeviceInfo",
    "Exit",
    "ExitKind",
    "Manifest",
    "Observation",
    "Phase",
    "Recording",
    "is_recording",
    "journal_line",
    "newest_recording",
    "open_recording",
    "write_manifest",
    "write_survey",
]

DEFAULT_ROOT = Path(".vramdoc")
MANIFEST, JOURNAL = "manifest.json", "journal.jsonl"
SNAPSHOT, OOM_SNAPSHOT, OUTPUT = "snapshot.pickle", "snapshot-oom.pickle", "output.log"
HOLDERS, OOM_HOLDERS = "holders.json", "holders-oom.json"
FATAL = "fatal.log"
STATUS = "exit-status"

_LARGEST_TEXT = GIB // 4
"""A manifest of a million phases is about 300 bytes a phase; beyond that it is not one of ours."""


@dataclass(frozen=True, slots=True)
class Recording:
    """One folder. Nothing is read before it is asked for, and nothing is kept."""

    folder: Path

    @property
    def manifest(self) -> Manifest:
        """The manifest, with the journal's lines where the program died before it could write them in.

        Raises:
            UnreadableInput: there is none, or it cannot be read.
        """
        manifest = load_manifest(_read_text(self.folder / MANIFEST))
        if manifest.exit.kind is not ExitKind.RUNNING:
            return manifest
        return with_journal(manifest, journal_entries(self.folder))

    @property
    def snapshot_path(self) -> Path | None:
        """The snapshot at the end of the run, if one was written."""
        return _existing(self.folder / SNAPSHOT)

    @property
    def oom_snapshot_path(self) -> Path | None:
        """The snapshot at the last out-of-memory error, if there was one."""
        return _existing(self.folder / OOM_SNAPSHOT)

    @property
    def survey(self) -> Survey | None:
        """What held device memory when the program ended, if that was kept.

        Raises:
            UnreadableInput: it was, and cannot be read.
        """
        return _survey(self.folder / HOLDERS)

    @property
    def oom_survey(self) -> Survey | None:
        """The same at the last out-of-memory error. Raises as ``survey`` does."""
        return _survey(self.folder / OOM_HOLDERS)

    @property
    def output_path(self) -> Path | None:
        """What the program printed, if it was kept."""
        return _existing(self.folder / OUTPUT)

    @property
    def ranks(self) -> tuple[Recording, ...]:
        """The further processes of the same run, in order of their number; empty for a single process."""
        return tuple(Recording(folder) for _, folder in sorted(_numbered(self.folder)))


def is_recording(path: Path) -> bool:
    """Whether ``path`` is a recording's folder; looks at names only."""
    return path.is_dir() and (path / MANIFEST).is_file()


def open_recording(path: Path) -> Recording:
    """Open the recording at ``path`` (its folder, or a manifest inside it) and check that it can be read.

    Raises:
        UnreadableInput: it is missing or not a recording.
    """
    folder = path.parent if path.name == MANIFEST else path
    if not is_recording(folder):
        raise UnreadableInput(
            f"{path} is not a recording: there is no {MANIFEST} in it",
            "name a folder that `vramdoc diagnose` or `vramdoc record` left under .vramdoc/",
        )
    recording = Recording(folder)
    recording.manifest  # noqa: B018 # read now, so that a broken one is refused here
    return recording


def newest_recording(root: Path = DEFAULT_ROOT) -> Recording | None:
    """The recording under ``root`` that was started last; None when there is none."""
    try:
        # Names begin with the time of the start, so their order is the order in time.
        folders = sorted(
            (folder for folder in root.iterdir() if is_recording(folder)), reverse=True
        )
    except OSError:
        return None
    return Recording(folders[0]) if folders else None


def write_manifest(folder: Path, manifest: Manifest) -> None:
    """Put the manifest in place, and drop the journal once the manifest holds it.

    Raises:
        StorageProblem: it cannot be written; the one before is then still there.
    """
    write_atomically(folder / MANIFEST, dump_manifest(manifest))
    if manifest.exit.kind is not ExitKind.RUNNING:
        (folder / JOURNAL).unlink(missing_ok=True)


def write_survey(path: Path, survey: Survey) -> None:
    """Put a survey in place.

    Raises:
        StorageProblem: it cannot be written; the one before is then still there.
    """
    write_atomically(path, json.dumps(to_json(survey), separators=(",", ":")).encode() + b"\n")


def journal_line(entry: Phase | Observation | str) -> bytes:
    """One line of the journal; a plain string is a note."""
    kind = {Phase: "phase", Observation: "observation"}.get(type(entry), "note")
    value = entry if isinstance(entry, str) else to_json(entry)
    return json.dumps({kind: value}, separators=(",", ":")).encode() + b"\n"


def with_journal(manifest: Manifest, lines: Iterable[dict[str, Any]]) -> Manifest:
    """The manifest with the journal's entries behind its own."""
    phases = {(phase.name, phase.started_us): phase for phase in manifest.phases}
    observations, notes = list(manifest.observations), dict.fromkeys(manifest.notes)
    for line in lines:
        if "phase" in line:
            phase = from_json(Phase, line["phase"])
            phases[phase.name, phase.started_us] = phase  # its end replaces its start
        elif "observation" in line:
            observations.append(from_json(Observation, line["observation"]))
        elif "note" in line:
            notes[str(line["note"])] = None
    return replace(
        manifest,
        phases=tuple(sorted(phases.values(), key=lambda phase: phase.started_us)),
        observations=tuple(observations),
        notes=tuple(notes),
    )


def journal_entries(folder: Path) -> Iterator[dict[str, Any]]:
    """The whole lines of a journal. Its writer may have died inside the last one, which is then left out."""
    path = folder / JOURNAL
    if not path.is_file():
        return
    for text in _read_text(path).split(b"\n"):
        try:
            line = json.loads(text)
        except (ValueError, RecursionError):
            continue
        if isinstance(line, dict):
            yield line


def _read_text(path: Path) -> bytes:
    try:
        if path.stat().st_size > _LARGEST_TEXT:
            raise UnreadableInput(f"{path} is larger than any file of a recording")
        return path.read_bytes()
    except OSError as error:
        raise UnreadableInput(f"cannot read {path}: {error.strerror or error}") from error


def _survey(path: Path) -> Survey | None:
    if not path.is_file():
        return None
    try:
        return from_json(Survey, json.loads(_read_text(path)))
    except (ValueError, RecursionError) as error:
        raise UnreadableInput(f"{path} is not JSON ({error})") from error


def _existing(path: Path) -> Path | None:
    return path if path.is_file() else None


def _numbered(folder: Path) -> Iterator[tuple[int, Path]]:
    for entry in folder.glob("rank-*"):
        number = entry.name.removeprefix("rank-")
        # A link could lead out of the recording, which may have come from somebody else.
        if number.isdecimal() and not entry.is_symlink() and is_recording(entry):
            yield int(number), entry
