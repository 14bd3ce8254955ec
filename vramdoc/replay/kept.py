"""Finished files of a sweep, kept on disk: one small file each, put in place whole, named after what was asked.

The name is a digest of the snapshot's content, the configs, the release, the device and our version: what was swept before is found
again wherever it lies now, and a changed file or question is swept anew. A damaged file counts as none.
"""

from __future__ import annotations

import hashlib
import json
from dataclasses import asdict, dataclass
from pathlib import Path

from vramdoc.errors import UnreadableInput
from vramdoc.record.manifest_json import from_json
from vramdoc.record.storage import create_root, write_atomically
from vramdoc.replay.file_task import FileReplays, Task

SUFFIX = ".json"


@dataclass(frozen=True, slots=True)
class Kept:
    """A folder of finished files. Several sweeps may share one, also at the same time."""

    folder: Path

    def prepare(self) -> None:
        """Make the folder.

        Raises:
            StorageProblem: it cannot be made.
        """
        create_root(self.folder)

    def is_empty(self) -> bool:
        """Whether nothing was finished yet."""
        return next(self.folder.glob(f"*{SUFFIX}"), None) is None

    def get(self, task: Task, content: str) -> FileReplays | None:
        """What was found for a file of this content, if it was asked the same."""
        try:
            result = from_json(FileReplays, json.loads(self._place(task, content).read_bytes()))
        except (OSError, ValueError, RecursionError, UnreadableInput):
            return None
        return result if result.content == content else None

    def put(self, task: Task, result: FileReplays) -> None:
        """Keep one finished file; one that could not be read is asked for again.

        Raises:
            StorageProblem: the disk is full or read-only.
        """
        if result.content:
            line = json.dumps(asdict(result), separators=(",", ":"))
            write_atomically(self._place(task, result.content), line.encode("utf-8"))

    def _place(self, task: Task, content: str) -> Path:
        asked = {**asdict(task), "path": content}
        name = hashlib.sha256(json.dumps(asked, sort_keys=True).encode("utf-8")).hexdigest()
        return self.folder / f"{name}{SUFFIX}"
