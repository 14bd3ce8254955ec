"""Run a workload in a child process, on a real or virtual device under an allocator config, and keep a recording of it.

It knows how to start the child and how to word its end. What the workload does is ``workload``'s business, what the child
keeps is ``record.inside``'s.
"""

from __future__ import annotations

import json
import os
import shutil
import sys
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from datetime import datetime, timezone
from pathlib import Path
from typing import Any

from vramdoc import errors
from vramdoc.allocator.config import AllocatorConfig
from vramdoc.errors import VramdocError
from vramdoc.record.child_process import BoundedLog, run_child
from vramdoc.record.device_choice import choose_device
from vramdoc.record.ending import OomKills, exit_of_status, read_oom_kills
from vramdoc.record.environment import with_alloc_conf
from vramdoc.record.first_manifest import first_manifest
from vramdoc.record.manifest import Exit, ExitKind
from vramdoc.record.preload import with_preload
from vramdoc.record.recording import DEFAULT_ROOT, OUTPUT, Recording, write_manifest
from vramdoc.record.storage import (
    create_folder,
    open_private_append,
    require_space,
    storage_problem,
)
from vramdoc.workload.spec import WorkloadSpec

MAX_ENTRIES = 1_000_000
"""Events of history kept. torch keeps the newest; a workload of ours makes about a tenth of that."""

_BOOTSTRAP = (
    "import sys; sys.path[:] = [p for p in sys.path if p] + [sys.argv[1]]; "
    "from vramdoc.record.inside.child import main; sys.exit(main())"
)
"""Not ``python -m``: that puts the working folder first on the path, where a stranger's ``torch.py`` may lie beside the model."""


def run_workload(  # noqa: PLR0913 # one keyword an option of the command line
    spec: WorkloadSpec,
    *,
    gpu: str,
    alloc_conf: str = "",
    root: Path = DEFAULT_ROOT,
    foreign_bytes: int = 0,
    progress: Callable[[str], None] | None = None,
    timeout: float | None = None,
    max_entries: int = MAX_ENTRIES,
    stacks: str = "python",
) -> Recording:
    """Run ``spec`` in a child process and return what it left, however it ended.

    ``gpu`` is ``cuda:N`` for a real device, else the name or size of a virtual one, of which other processes hold
    ``foreign_bytes``. ``alloc_conf`` is in the child's environment before torch is imported. ``timeout`` is in seconds.

    Raises:
        UsageError: the config string is one that torch would refuse; nothing was started.
        DeviceUnavailable, MissingDependency: there is no such GPU, no CUDA build of torch, no compiler.
        StorageProblem: no room for the recording, or the disk filled up; nothing half-written is left.
        UnreadableInput: the model cannot be run as it lies.
    """
    device = choose_device(gpu, foreign_bytes)
    AllocatorConfig.parse(alloc_conf, release=device.torch_release)
    require_space(root)
    environment = with_alloc_conf(device.environment(os.environ), alloc_conf)
    name = Path(spec.target).name
    folder = create_folder(root, name, datetime.now(timezone.utc))
    try:
        write_manifest(
            folder,
            first_manifest(
                "model",
                name,
                environment,
                workload={**spec.to_json(), "target": name, "line": spec.line()},
                versions={"torch": device.torch_version},
            ),
        )
        run = _Run(folder, progress or (lambda _sentence: None))
        request = {
            "folder": str(folder.absolute()),
            "spec": spec.to_json(),
            "device": device.to_json(),
            "max_entries": max_entries,
            "stacks": stacks,
        }
        run.to_the_end(environment, request, timeout)
    except VramdocError:
        shutil.rmtree(folder, ignore_errors=True)
        raise
    return Recording(folder)


@dataclass(slots=True)
class _Run:
    """One child, from its start to a manifest that says how it ended."""

    folder: Path
    progress: Callable[[str], None]
    _phase: str = "start"
    _error: VramdocError | None = None
    _stray: list[bytes] = field(default_factory=list)

    def to_the_end(
        self, environment: Mapping[str, str], request: Mapping[str, Any], timeout_s: float | None
    ) -> None:
        argv = [sys.executable, "-c", _BOOTSTRAP, str(Path(__file__).resolve().parents[2])]
        handle = open_private_append(self.folder / OUTPUT)
        log = BoundedLog(handle)
        before = read_oom_kills()
        try:
            status = run_child(
                argv,
                environment=with_preload({**environment, "PYTHONFAULTHANDLER": "1"}),
                request=json.dumps(request).encode() + b"\n",
                log=log,
                report=lambda line: self._hear(line, log),
                timeout_s=timeout_s,
            )
        except KeyboardInterrupt:
            self._complete(Exit(kind=ExitKind.INTERRUPTED, message="interrupted by the person"))
            raise
        finally:
            log.close()
            os.close(handle)
        if self._error is not None:
            raise self._error
        if log.problem is not None:
            raise storage_problem(self.folder / OUTPUT, log.problem)
        if status is None:
            message = f"stopped after {timeout_s:g} s, the time it was given"
            self._complete(Exit(kind=ExitKind.INTERRUPTED, message=message))
        else:
            self._complete_by_status(status, before)

    def _hear(self, line: bytes, log: BoundedLog) -> None:
        """One line from the child: progress, its own error, or something that a library printed on stdout."""
        try:
            report = json.loads(line)
            self._understand(report)
        except (ValueError, TypeError, KeyError, AttributeError):
            log.write(line)

    def _understand(self, report: dict[str, Any]) -> None:
        if "error" in report:
            kind = getattr(errors, report["error"], VramdocError)
            self._error = kind(report["message"], report["hint"])
        elif "phase" in report:
            self._phase = str(report["phase"])
            self.progress(self._phase)
        else:
            self.progress(f"{self._phase} {int(report['done'])}/{int(report['total'])}")

    def _complete_by_status(self, status: int, before: OomKills) -> None:
        ending, sentence = exit_of_status(status, before, read_oom_kills())
        self._complete(ending, sentence)

    def _complete(self, ending: Exit, sentence: str = "") -> None:
        """Write the end where the child could not; what it wrote itself knows more and stays."""
        manifest = Recording(self.folder).manifest
        if manifest.exit.kind is ExitKind.RUNNING:
            notes = (*manifest.notes, sentence) if sentence else manifest.notes
            write_manifest(self.folder, replace(manifest, exit=ending, notes=notes))
        elif ending.kind is ExitKind.INTERRUPTED and manifest.exit.kind is ExitKind.INTERRUPTED:
            told = replace(manifest.exit, message=ending.message)
            write_manifest(self.folder, replace(manifest, exit=told))
