"""The child that runs a workload: one request in on stdin, progress out on stdout, a recording left in a folder.

Started by ``record.launch`` and by nobody else. What the program itself prints, on either stream, goes to stderr.
"""

from __future__ import annotations

import json
import os
import signal
import sys
import threading
import time
import traceback
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import torch

from vramdoc.errors import StorageProblem, VramdocError
from vramdoc.record.ending import exit_of_exception, qualified_name
from vramdoc.record.inside.guards import install
from vramdoc.record.inside.recorder import Recorder
from vramdoc.record.inside.surroundings import (
    describe_device,
    measure_context,
    used_before_context,
)
from vramdoc.record.manifest import Exit, ExitKind
from vramdoc.record.recording import Recording
from vramdoc.virtual_gpu.inside import prepare_torch
from vramdoc.workload.run import run
from vramdoc.workload.spec import WorkloadSpec

_PROGRESS_EVERY_S = 0.2


@dataclass(slots=True)
class Channel:
    """The way back to the parent: one JSON object a line."""

    handle: int
    _last: float = 0.0

    @classmethod
    def over_stdout(cls) -> Channel:
        """Keep stdout for reports, and send everything else that is printed there to stderr."""
        channel = cls(os.dup(1))
        os.dup2(2, 1)
        return channel

    def send(self, **report: Any) -> None:
        """Report; a parent that is gone hears nothing."""
        with suppress(OSError):
            os.write(self.handle, json.dumps(report).encode() + b"\n")

    def send_progress(self, done: int, total: int) -> None:
        """Report progress, a few times a second at most."""
        now = time.monotonic()
        if done >= total or now - self._last >= _PROGRESS_EVERY_S:
            self._last = now
            self.send(done=done, total=total)


def main() -> int:
    """Run the request. The exit status is 0 for success, 1 for an exception of the program, 3 for one of vramdoc's own errors."""
    channel = Channel.over_stdout()
    request = json.loads(sys.stdin.buffer.readline())
    threading.Thread(target=_end_with_parent, daemon=True).start()
    # Asked to end, the child still finishes its recording.
    signal.signal(signal.SIGTERM, signal.default_int_handler)
    try:
        recorder = _start(request, channel)
        return _run(WorkloadSpec.from_json(request["spec"]), recorder)
    except VramdocError as error:
        channel.send(error=type(error).__name__, message=error.message, hint=error.hint)
        return 3


def _start(request: Mapping[str, Any], channel: Channel) -> Recorder:
    device = request["device"]
    is_virtual = device["kind"] == "virtual"
    notes = prepare_torch(torch) if is_virtual else []
    used_before, driver = ({}, "") if is_virtual else used_before_context()
    torch.cuda.init()
    torch.cuda.set_device(device["index"])
    measured = device["assumed"] or measure_context(device["index"], used_before)
    recording = Recording(Path(request["folder"]))
    manifest = recording.manifest
    if driver:
        manifest = replace(manifest, versions={**manifest.versions, "driver": driver})
    recorder = Recorder(
        recording.folder,
        manifest,
        owns_peaks=True,
        say=_refuse,
        on_phase=lambda name: channel.send(phase=name),
        on_progress=channel.send_progress,
    )
    recorder.begin()
    recorder.begin_history(
        describe_device(device["kind"], device["key"], device["index"], measured),
        max_entries=request["max_entries"],
        stacks=request["stacks"],
    )
    for sentence in notes:
        recorder.note(sentence)
    return recorder


def _run(spec: WorkloadSpec, recorder: Recorder) -> int:
    guards = install(recorder.observe)
    try:
        held = run(spec, recorder)
    except VramdocError:
        raise
    except BaseException as error:  # noqa: BLE001 # an interrupt and a SystemExit are ends worth keeping too
        text = traceback.format_exc()
        sys.stderr.write(text)
        # Inside the handler the frames still hold the failed step's tensors: guards and snapshot see them.
        guards.examine(error)
        guards.report()
        recorder.finish(exit_of_exception(qualified_name(type(error)), str(error), text))
        return 1
    guards.report()
    recorder.finish(Exit(kind=ExitKind.SUCCESS, code=0))
    del held  # until here, so that the last snapshot shows what the model still holds
    return 0


def _refuse(problem: StorageProblem) -> None:
    """A diagnosis without a recording is none: give up."""
    raise problem


def _end_with_parent() -> None:
    """Wait for the end of stdin, which is the end of the parent, however it came; nobody is left to want the result."""
    while os.read(0, 1 << 10):
        pass
    os._exit(4)


if __name__ == "__main__":
    sys.exit(main())
