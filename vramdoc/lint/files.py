"""Which files a run looks at, how each is to be read, and its text.

Recognised by name, and without a telling name by the ``#!`` line. Below a folder only recognised files are taken, and folders
that hold other people's code or build products are left out; a file or folder that was named itself is always taken.
"""

from __future__ import annotations

import io
import os
import tokenize
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from enum import Enum
from pathlib import Path

LARGEST = 8 << 20
"""Bytes. Sources written by people stay below 1 MiB (the largest file of torch 2.14 has 1.2); 8 MiB of Python take about 4 s and 1 GiB to parse."""
SKIPPED = frozenset({
    "__pycache__", "__pypackages__", "node_modules", "site-packages", "venv", "buck-out", "build", "dist", "_build",
})  # fmt: skip
_KEPT_HIDDEN = frozenset({".github", ".gitlab", ".circleci", ".devcontainer", ".ci"})
"""Hidden folders that hold CI and container settings."""


class Kind(Enum):
    """How a file is read."""

    PYTHON = "Python"
    NOTEBOOK = "notebook"
    SHELL = "shell"
    DOTENV = "environment file"
    DOCKERFILE = "Dockerfile"
    YAML = "YAML"


_BY_SUFFIX = {
    ".py": Kind.PYTHON,
    ".pyi": Kind.PYTHON,
    ".pyw": Kind.PYTHON,
    ".ipynb": Kind.NOTEBOOK,
    ".sh": Kind.SHELL,
    ".bash": Kind.SHELL,
    ".zsh": Kind.SHELL,
    ".ksh": Kind.SHELL,
    ".csh": Kind.SHELL,
    ".tcsh": Kind.SHELL,
    ".sbatch": Kind.SHELL,
    ".slurm": Kind.SHELL,
    ".ps1": Kind.SHELL,
    ".env": Kind.DOTENV,
    ".envrc": Kind.SHELL,
    ".dockerfile": Kind.DOCKERFILE,
    ".yaml": Kind.YAML,
    ".yml": Kind.YAML,
}


class CannotRead(Exception):
    """A file that cannot be checked; the argument says why in one line."""


@dataclass(frozen=True, slots=True)
class Found:
    """A file to check. ``kind`` is None where only its first line can tell."""

    path: Path
    kind: Kind | None


def discover(paths: Iterable[Path]) -> Iterator[Found]:
    """Files below ``paths``, each once, in sorted order. A path that does not exist is yielded all the same."""
    seen: set[Path] = set()
    for path in paths:
        below = os.path.isdir(path)  # noqa: PTH112 - Path.is_dir raises where the folder is closed
        for found in _below(path) if below else [Found(path, kind_by_name(path))]:
            if found.path not in seen:
                seen.add(found.path)
                yield found


def _below(folder: Path) -> Iterator[Found]:
    closed: list[OSError] = []
    for root, folders, files in os.walk(folder, onerror=closed.append):
        yield from (Found(Path(error.filename), None) for error in closed)
        closed.clear()
        folders[:] = sorted(name for name in folders if _entered(Path(root) / name))
        for name in sorted(files):
            path = Path(root, name)
            kind = kind_by_name(path)
            if kind is not None and _may_be_file(path):
                yield Found(path, kind)
    yield from (Found(Path(error.filename), None) for error in closed)


def _may_be_file(path: Path) -> bool:
    """False for pipes, devices and links that lead nowhere; True where one may not even look, which is for ``read`` to tell."""
    try:
        return path.is_file()
    except PermissionError:
        return True


def _entered(folder: Path) -> bool:
    name = folder.name
    if name in SKIPPED or (name.startswith(".") and name not in _KEPT_HIDDEN):
        return False
    return not os.path.exists(folder / "pyvenv.cfg")  # noqa: PTH110 - Path.exists raises where the folder is closed


def kind_by_name(path: Path) -> Kind | None:
    """What the name says, if anything."""
    name = path.name.lower()
    if name in {"dockerfile", "containerfile"} or name.startswith(
        ("dockerfile.", "containerfile.")
    ):
        return Kind.DOCKERFILE
    if name == ".env" or name.startswith(".env."):
        return Kind.DOTENV
    if name == ".envrc":
        return Kind.SHELL
    return _BY_SUFFIX.get(path.suffix.lower())


def kind_by_content(text: str) -> Kind:
    """What the first line says; Python where it says nothing."""
    first = text.partition("\n")[0]
    if first.startswith("#!") and "python" not in first:
        return Kind.SHELL
    return Kind.PYTHON


def read(path: Path, kind: Kind | None) -> str:
    """The text of a file, in the encoding that it declares.

    Raises:
        CannotRead: missing, not a file, too large, or not text.
    """
    try:
        if path.is_dir():
            raise CannotRead("a folder that cannot be listed")
        if not path.is_file():
            raise CannotRead("no such file" if not path.exists() else "not a file")
        size = path.stat().st_size
        if size > LARGEST:
            raise CannotRead(
                f"{size / (1 << 20):.0f} MiB; files over {LARGEST >> 20} MiB are not read"
            )
        data = path.read_bytes()
    except OSError as error:
        raise CannotRead(error.strerror or "cannot be opened") from None
    return decode(data, kind)


def decode(data: bytes, kind: Kind | None) -> str:
    """Bytes to text: Python's own rule for Python (PEP 263), UTF-8 for the rest.

    Raises:
        CannotRead: the bytes are not text in that encoding.
    """
    encoding = "utf-8-sig"
    if kind is Kind.PYTHON or kind is None:
        try:
            encoding, _ = tokenize.detect_encoding(io.BytesIO(data).readline)
        except SyntaxError as error:
            raise CannotRead(f"not text: {error.msg}") from None
    try:
        return data.decode(encoding)
    except (UnicodeDecodeError, LookupError) as error:
        raise CannotRead(f"not {encoding} text: {error}") from None
