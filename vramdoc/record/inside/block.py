"""Recording a block of the person's own program, without ``vramdoc record`` around it: ``with vramdoc.recording("name")``."""

from __future__ import annotations

import os
import traceback
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import datetime, timezone
from pathlib import Path

from vramdoc.record import connection
from vramdoc.record.ending import exit_of_exception, qualified_name
from vramdoc.record.first_manifest import first_manifest
from vramdoc.record.manifest import Exit, ExitKind
from vramdoc.record.storage import create_folder, require_space

MAX_ENTRIES = 1_000_000


@contextmanager
def record_block(name: str, root: Path) -> Iterator[Path | None]:
    """Record the block in a new folder under ``root`` and yield the folder; None where torch has no GPU.

    A history that the program itself switched on is used and left on.

    Raises:
        StorageProblem: there is no room for the recording; the block has not begun.
    """
    try:
        import torch
    except ImportError:
        yield None
        return
    if not torch.cuda.is_available():
        yield None
        return
    from vramdoc.record.inside.history import is_history_on, stop_history
    from vramdoc.record.inside.recorder import Recorder
    from vramdoc.record.inside.surroundings import describe_device, kind_of_device

    torch.cuda.init()
    require_space(root)
    folder = create_folder(root, name, datetime.now(timezone.utc))
    was_on = is_history_on()
    recorder = Recorder(folder, first_manifest("block", name, os.environ), looks_for_holders=True)
    index = torch.cuda.current_device()
    device = describe_device(kind_of_device(), f"cuda:{index}", index, {})
    recorder.begin()
    recorder.begin_history(device, max_entries=None if was_on else MAX_ENTRIES)
    connection.begin(recorder)
    ending, raised = Exit(kind=ExitKind.SUCCESS), None
    try:
        yield folder
    except BaseException as error:
        raised = error
        ending = exit_of_exception(qualified_name(type(error)), str(error), traceback.format_exc())
        raise
    finally:
        connection.end()
        recorder.finish(ending, error=raised)
        del raised  # its frames hold this one
        if not was_on:
            stop_history()
