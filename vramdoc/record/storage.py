"""Writing to disk so that nothing half-written is ever taken for whole, and nobody else can read it.

It knows no format: bytes and folders only.

A file is written beside its final name, forced to the disk and renamed over it, so a reader sees the old
content or the new one, also when the writer is killed or the disk fills up at any instant.
"""

from __future__ import annotations

import contextlib
import errno
import os
import re
import secrets
import shutil
from collections.abc import Callable
from datetime import datetime
from pathlib import Path
from typing import BinaryIO

from vramdoc.errors import StorageProblem
from vramdoc.units import MIB, format_bytes

MINIMUM_FREE_BYTES = 64 * MIB
"""Asked for before a run starts. A snapshot takes about 250 bytes an event with its stack, so this is room for
the two snapshots of a 100,000-event run and for its output."""

TEMPORARY_PREFIX = ".unfinished-"
"""Files with this prefix were being written when their writer died; readers never look at them."""

_PRIVATE_FOLDER, _PRIVATE_FILE = 0o700, 0o600
_UNSAFE_IN_NAME = re.compile(r"[^A-Za-z0-9._-]+")


def storage_problem(path: Path, error: OSError) -> StorageProblem:
    """Word an ``OSError`` for people: the path, the system's reason, what to do."""
    return StorageProblem(
        f"cannot write {path}: {error.strerror or error}",
        "free some space there or choose a folder that can be written",
    )


def require_space(folder: Path, wanted_bytes: int = MINIMUM_FREE_BYTES) -> None:
    """Check that the disk of ``folder`` (or of its nearest existing parent) has room.

    Raises:
        StorageProblem: less than ``wanted_bytes`` are free.
    """
    existing = next(parent for parent in (folder, *folder.absolute().parents) if parent.exists())
    try:
        free = shutil.disk_usage(existing).free
    except OSError as error:
        raise storage_problem(existing, error) from error
    if free < wanted_bytes:
        raise StorageProblem(
            f"no room for a recording: {format_bytes(free)} free at {folder}, "
            f"{format_bytes(wanted_bytes)} wanted",
            "free some space there or choose another folder",
        )


def create_root(root: Path) -> None:
    """Create the folder that holds recordings, private to the user and invisible to git.

    Raises:
        StorageProblem: it cannot be created.
    """
    try:
        root.mkdir(mode=_PRIVATE_FOLDER, parents=True, exist_ok=True)
        ignore = root / ".gitignore"
        if not ignore.exists():
            ignore.write_text("*\n", encoding="ascii")
    except OSError as error:
        raise storage_problem(root, error) from error


def folder_name(subject: str, now: datetime) -> str:
    """``20261201-101500.042-train.py-4f2a1b``: sorted by time, readable, and no other command's at the same moment."""
    words = _UNSAFE_IN_NAME.sub("-", subject).strip("-.")[:40] or "run"
    return f"{now:%Y%m%d-%H%M%S}.{now.microsecond // 1000:03}-{words}-{secrets.token_hex(3)}"


def create_folder(root: Path, subject: str, now: datetime) -> Path:
    """Create ``root/<time>-<subject>-<random>``, a name that no other command takes at the same moment.

    Raises:
        StorageProblem: it cannot be created.
    """
    create_root(root)
    while True:
        folder = root / folder_name(subject, now)
        try:
            folder.mkdir(mode=_PRIVATE_FOLDER)
        except FileExistsError:
            continue
        except OSError as error:
            raise storage_problem(folder, error) from error
        return folder


def write_atomically(path: Path, content: bytes | Callable[[BinaryIO], None]) -> None:
    """Write ``content`` (bytes, or a function that writes them) to ``path``, all or nothing.

    Raises:
        StorageProblem: the disk is full, the folder read-only, or the like. ``path`` is then as it was.
    """
    temporary = path.with_name(
        f"{TEMPORARY_PREFIX}{path.name}-{os.getpid()}-{secrets.token_hex(4)}"
    )
    try:
        handle = os.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_EXCL | _O_BINARY, _PRIVATE_FILE)
        try:
            with os.fdopen(handle, "wb") as stream:
                if callable(content):
                    content(stream)
                else:
                    stream.write(content)
                stream.flush()
                os.fsync(stream.fileno())
            temporary.replace(path)
        except BaseException:
            with contextlib.suppress(OSError):
                temporary.unlink()
            raise
        _sync_folder(path.parent)
    except OSError as error:
        raise storage_problem(path, error) from error


def writer_of(temporary: Path) -> int | None:
    """The process that writes, or wrote, an unfinished file."""
    pid = temporary.name.rsplit("-", 2)[-2]
    return int(pid) if pid.isdecimal() else None


_O_BINARY = getattr(os, "O_BINARY", 0)
_O_DIRECTORY = getattr(os, "O_DIRECTORY", None)


def _sync_folder(folder: Path) -> None:
    """Make a rename survive a power cut; Windows has no such call and needs none."""
    if _O_DIRECTORY is None:
        return
    handle = os.open(folder, os.O_RDONLY | _O_DIRECTORY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)


def open_private_append(path: Path) -> int:
    """A descriptor that appends to ``path``; a line written at once lands whole or, at a full disk, cut at its end.

    Raises:
        StorageProblem: it cannot be opened.
    """
    try:
        return os.open(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND | _O_BINARY, _PRIVATE_FILE)
    except OSError as error:
        raise storage_problem(path, error) from error


def append_line(path: Path, line: bytes) -> None:
    """Append one line. The file is not kept open: in somebody's program a descriptor may become another file's.

    Raises:
        StorageProblem: it cannot be written, or not whole; a reader then leaves it out.
    """
    handle = open_private_append(path)
    try:
        written = os.write(handle, line)
    except OSError as error:
        raise storage_problem(path, error) from error
    finally:
        os.close(handle)
    if written < len(line):
        raise storage_problem(path, OSError(errno.ENOSPC, os.strerror(errno.ENOSPC)))
