"""Recording somebody's program from within: attached when torch is imported, started by the first use of the GPU.

It never stops the program and never prints, but for one line on stderr when it cannot record.
"""

from __future__ import annotations

import atexit
import ctypes
import faulthandler
import os
import sys
import threading
import traceback
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

import torch

from vramdoc.record import connection
from vramdoc.record.claim import claim_folder, rank_of
from vramdoc.record.ending import exit_of_exception, qualified_name
from vramdoc.record.first_manifest import first_manifest
from vramdoc.record.inside.descriptors import out_of_the_way
from vramdoc.record.inside.guards import Guards, install
from vramdoc.record.inside.history import is_history_on, no_collection
from vramdoc.record.inside.levels import device_in_use
from vramdoc.record.inside.recorder import Recorder
from vramdoc.record.inside.surroundings import (
    describe_device,
    foreign_bytes,
    used_before_context,
)
from vramdoc.record.inside.watch import Watch
from vramdoc.record.manifest import DeviceInfo, Exit, ExitKind, Manifest
from vramdoc.record.recording import FATAL, STATUS
from vramdoc.record.settings import RecordingSettings
from vramdoc.record.storage import open_private_append


def attach(text: str) -> None:
    """Wait for the program's first use of the GPU; called right after ``import torch``, with the settings variable's value."""
    script = Script(RecordingSettings.from_text(text))
    if script.settings.device_kind == "virtual":
        from vramdoc.virtual_gpu.inside import prepare_torch

        script.notes += prepare_torch(torch)
    torch.cuda._lazy_call(script.start)  # noqa: SLF001 # runs inside torch.cuda.init(), in the thread that needs the GPU
    script.catch_end()
    if hasattr(os, "register_at_fork"):
        os.register_at_fork(after_in_child=script.forget)
    script.guards = install(script.observe)
    connection.wait()


class Script:
    """One process of the recorded program."""

    def __init__(self, settings: RecordingSettings) -> None:
        self.settings = settings
        self.notes: list[str] = []
        self.recorder: Recorder | None = None
        self.guards: Guards | None = None
        self._watch: Watch | None = None
        self._fatal: Any = None
        self._used_before: dict[str, int] = {}
        self._ended = False
        self._lock = threading.RLock()
        self._last_value = getattr(sys, "last_value", None)

    def start(self) -> None:
        """Begin to record the GPU; torch calls this when CUDA is ready and nothing is allocated."""
        with self._never_failing():
            self._begin()
            if self.recorder is not None:
                if self.settings.device_kind == "real":
                    self._used_before, _ = used_before_context()
                # While torch.cuda.init() runs, no device is in use yet.
                self.recorder.begin_history(
                    self._device(torch.cuda.current_device()),
                    max_entries=self.settings.max_entries,
                    stacks=self.settings.stacks,
                )
                self._watch = Watch(
                    self.recorder.checkpoint,
                    self.recorder.expected_checkpoint_s,
                    self._end_by_signal,
                    self._look,
                    self.settings.every_s,
                )
                self._watch.start()

    def observe(self, kind: str, **detail: Any) -> None:
        """Keep what a guard saw. It may be the first thing worth keeping: a resize can fail before the GPU is used."""
        with self._never_failing():
            self._begin()
        recorder = self.recorder
        if recorder is not None:
            recorder.observe(kind, **detail)

    def forget(self) -> None:
        """In a forked child: the recording is the parent's."""
        if self._watch is not None:
            self._watch.leave()
        if self._fatal is not None:
            faulthandler.disable()
        self.recorder, self._watch, self._fatal, self._ended = None, None, None, False
        self._lock = threading.RLock()
        connection.wait()

    @contextmanager
    def _never_failing(self) -> Iterator[None]:
        """Whatever goes wrong here must not become the program's error, least of all inside ``torch.cuda.init()``."""
        try:
            with self._lock:
                yield
        except Exception as error:  # noqa: BLE001 # see above
            self._ended = True
            _say(error)

    def _begin(self) -> None:
        if self.recorder is not None or self._ended:
            return
        rank = rank_of(os.environ)
        folder = claim_folder(Path(self.settings.folder), rank)
        recorder = Recorder(
            folder,
            self._first_manifest(rank),
            looks_for_holders=self.settings.holders,
            say=_say,
        )
        recorder.begin()
        for sentence in self.notes:
            recorder.note(sentence)
        self.recorder = recorder
        _keep_exit_status(folder / STATUS)
        self._catch_fatal_signals(folder)
        self._catch_end_of_child()
        connection.begin(recorder)

    def _device(self, index: int) -> DeviceInfo:
        settings = self.settings
        seen = settings.assumed or foreign_bytes(index, self._used_before)
        return describe_device(settings.device_kind, settings.device_key, index, seen)

    def _first_manifest(self, rank: int | None) -> Manifest:
        manifest = first_manifest("script", self.settings.subject, os.environ)
        return replace(manifest, rank=rank, extra={"pid": os.getpid()})

    def _catch_fatal_signals(self, folder: Path) -> None:
        """Have the stacks of a crash (SIGSEGV, SIGABRT ...) kept, unless the program has them printed already."""
        if not faulthandler.is_enabled():
            handle = open_private_append(folder / FATAL)
            self._fatal = os.fdopen(out_of_the_way(handle), "wb", buffering=0)
            faulthandler.enable(self._fatal)

    def catch_end(self) -> None:
        """Be called when the interpreter ends, also of a process that never used the GPU: a resize may have failed in it."""
        atexit.register(self._end_of_interpreter)

    def _catch_end_of_child(self) -> None:
        """A child of multiprocessing leaves through ``os._exit()``, and its exception is being handled while this runs."""
        if sys.modules.get("multiprocessing.process") and _is_multiprocessing_child():
            from multiprocessing import util

            util.Finalize(self, self._end_of_child, exitpriority=10)

    def _end_of_interpreter(self) -> None:
        error = getattr(sys, "last_value", None)  # set for an exception that nobody caught
        with no_collection():  # the garbage of the program is still to be measured
            self._finish(error if error is not self._last_value else None, may_collect=True)

    def _end_of_child(self) -> None:
        error = sys.exc_info()[1]
        if isinstance(error, SystemExit) and error.code and error.__context__ is not None:
            error = error.__context__  # torch.multiprocessing reports it and then exits
        self._finish(error, code=0)

    def _look(self) -> None:
        recorder = self.recorder
        if recorder is not None:
            recorder.keep_holders()

    def _end_by_signal(self, number: int) -> None:
        self._complete(Exit(kind=ExitKind.SIGNAL, signal=number))

    def _finish(
        self, error: BaseException | None, *, code: int | None = None, may_collect: bool = False
    ) -> None:
        """``code`` is the status of a process that ends well, where it is known from within."""
        if self.guards is not None:
            self.guards.examine(error)
            if self.recorder is not None:
                self.guards.report()
        self._complete(_ending_of(error, code), error, may_collect=may_collect)

    def _complete(
        self, ending: Exit, error: BaseException | None = None, *, may_collect: bool = False
    ) -> None:
        """Finish the recording once. Whoever comes second waits for the first: a SIGTERM must not end a half-written one."""
        with self._lock:
            recorder, self.recorder, self._ended = self.recorder, None, True
            if recorder is None:
                return
            try:
                self._finish_recorder(recorder, ending, error, may_collect=may_collect)
            except Exception as problem:  # noqa: BLE001 # the program is over; its status must not change
                _say(problem)

    def _finish_recorder(
        self, recorder: Recorder, ending: Exit, error: BaseException | None, *, may_collect: bool
    ) -> None:
        connection.end()
        if device_in_use() is not None and not is_history_on():
            recorder.note("The program switched torch's memory history off: there are no events.")
        index = device_in_use()
        device = None if index is None else self._device(index)
        recorder.finish(ending, device, error, may_collect=may_collect)
        self._drop_empty_fatal_file(recorder.folder)

    def _drop_empty_fatal_file(self, folder: Path) -> None:
        if self._fatal is not None:
            faulthandler.disable()
            self._fatal.close()
            (folder / FATAL).unlink(missing_ok=True)


def _ending_of(error: BaseException | None, code: int | None) -> Exit:
    if error is None or (isinstance(error, SystemExit) and not error.code):
        return Exit(kind=ExitKind.SUCCESS, code=code)
    if isinstance(error, SystemExit):
        return Exit(kind=ExitKind.EXCEPTION, code=error.code if isinstance(error.code, int) else 1)
    text = "".join(traceback.format_exception(type(error), error, error.__traceback__))
    return exit_of_exception(qualified_name(type(error)), str(error), text)


def _keep_exit_status(path: Path) -> None:
    """Where the recorder's library is preloaded. What a program passes to ``sys.exit()`` is gone when Python's own handlers run."""
    process = ctypes.CDLL(None) if sys.platform == "linux" else None
    if process is not None and hasattr(process, "vramdoc_keep_exit_status"):
        process.vramdoc_keep_exit_status(os.fsencode(path))


def _is_multiprocessing_child() -> bool:
    from multiprocessing import parent_process

    return parent_process() is not None


def _say(problem: Exception) -> None:
    """The one line. stderr itself may be gone; then nobody is told."""
    try:
        sys.stderr.write(f"vramdoc: {problem}; the program runs on, not recorded\n")
    except (OSError, ValueError, AttributeError):
        return
