"""What stands at the other end of stdout and stderr: width, colour, encoding. And the one way to write a file.

It decides how to show, never what.
"""

from __future__ import annotations

import os
import shutil
import sys
import tempfile
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TextIO

from vramdoc.errors import StorageProblem, UsageError


@dataclass(frozen=True, slots=True, kw_only=True)
class Terminal:
    """How to write to one stream."""

    width: int
    colour: bool
    ascii_only: bool
    interactive: bool

    @property
    def shape(self) -> dict[str, Any]:
        """What every renderer for a terminal asks for."""
        return {"width": self.width, "colour": self.colour, "ascii_only": self.ascii_only}


def terminal_of(stream: TextIO, environment: Mapping[str, str] | None = None) -> Terminal:
    """Look at ``stream``: NO_COLOR and FORCE_COLOR are obeyed, a pipe gets 80 columns and no colour."""
    env = os.environ if environment is None else environment
    interactive = stream.isatty()
    colour = interactive and env.get("TERM") != "dumb"
    if env.get("FORCE_COLOR"):
        colour = True
    if env.get("NO_COLOR"):
        colour = False
    columns = shutil.get_terminal_size((80, 24)).columns if interactive or "COLUMNS" in env else 80
    return Terminal(
        width=max(40, columns),
        colour=colour,
        ascii_only=not _can_draw(stream.encoding or "ascii"),
        interactive=interactive,
    )


def _can_draw(encoding: str) -> bool:
    try:
        "█░─│→≥".encode(encoding)
    except (UnicodeEncodeError, LookupError):
        return False
    return True


def show(text: str) -> None:
    """Write a rendered report to stdout, whatever its encoding.

    Raises:
        BrokenPipeError: its reader has gone.
        StorageProblem: stdout is a file on a full disk.
    """
    stream = sys.stdout
    encoding = stream.encoding or "ascii"
    ended = text if text.endswith("\n") else f"{text}\n"
    try:
        stream.write(ended.encode(encoding, "replace").decode(encoding))
        stream.flush()
    except BrokenPipeError:
        raise
    except OSError as error:
        leave_stdout()
        raise StorageProblem(
            f"the output cannot be written: {error.strerror or error}", "free some space there"
        ) from error


def leave_stdout() -> None:
    """Let what is still buffered go nowhere, so that Python does not complain about it at exit."""
    os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())


def say(sentence: str) -> None:
    """Write one line of talk to stderr."""
    encoding = sys.stderr.encoding or "ascii"
    print(sentence.encode(encoding, "replace").decode(encoding), file=sys.stderr, flush=True)


@contextmanager
def progress(*, enabled: bool = True) -> Iterator[Callable[[str], None]]:
    """Yield a function that shows what is being done, on one line of stderr that goes away; silent off a terminal."""
    if not enabled or not sys.stderr.isatty():
        yield lambda _sentence: None
        return
    from rich.console import Console

    with Console(stderr=True).status("starting") as status:
        yield status.update


def write_file(path: Path, content: str | bytes, *, force: bool) -> None:
    """Write a file whole or not at all; an existing one only with ``force``.

    Raises:
        UsageError: the file exists.
        StorageProblem: it cannot be written.
    """
    if path.exists() and not force:
        raise UsageError(f"{path} exists", "use --force to overwrite it")
    data = content.encode("utf-8") if isinstance(content, str) else content
    temporary = ""
    try:
        handle, temporary = tempfile.mkstemp(dir=path.parent, prefix=f".{path.name}.")
        with os.fdopen(handle, "wb") as file:
            file.write(data)
        os.chmod(temporary, 0o644)  # noqa: PTH101 - mkstemp made it private, a report is to be shared
        os.replace(temporary, path)  # noqa: PTH105
    except OSError as error:
        if temporary:
            Path(temporary).unlink(missing_ok=True)
        raise StorageProblem(
            f"{path} cannot be written: {error.strerror or error}", "name another place"
        ) from error


def write_files(folder: Path, files: Mapping[str, bytes], *, force: bool) -> None:
    """Write named files into a folder, which is made where it is missing.

    Raises:
        UsageError, StorageProblem: as for ``write_file``.
    """
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise StorageProblem(
            f"{folder} cannot be made: {error.strerror or error}", "name another place"
        ) from error
    for name, content in files.items():
        write_file(folder / name, content, force=force)
