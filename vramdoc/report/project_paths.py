"""Cuts absolute paths to the part that belongs to the project or to a library: never a home folder, never what lies above.

It knows the spelling of paths on Linux, macOS and Windows and where Python keeps libraries; it looks at no file system.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from posixpath import commonpath

PATH = re.compile(
    r"(?P<quote>[\"'])(?P<quoted>(?:~[\w.-]*)?(?:/|[A-Za-z]:[\\/]|\\\\)[^\"'\n]*)(?P=quote)"
    r"|(?<![\w.~/\\-])(?P<bare>"
    r"(?:[A-Za-z]:[\\/]+|\\\\)(?:Users[\\/]+[^\\/:*?\"<>|\n]+[\\/])?[^\s:*?\"'<>|,;()\[\]{}]*"
    r"|~?/(?!/)[^\s:\"'<>|,;()\[\]{}]+"
    r"|~[\w.-]+/[^\s:\"'<>|,;()\[\]{}]*)"
)
"""A quoted path may hold blanks; a bare one only inside a Windows user's name."""
HOME = re.compile(
    r"^(?:[A-Za-z]:)?/+(?:home|Users|users|export/home|mnt/[a-z]/Users)/+(?P<user>[^/]+)"
    r"|^/root(?=/|$)|^~[\w.-]*(?=/|$)"
)
_LIBRARY = re.compile(
    r"^.*/(?=(?:site-packages|dist-packages)/.)|^.*/(?=python3(?:\.\d+)?t?/.)|^.*/(?=Lib/.)"
    r"|^.*/(?=pytorch/torch/|vramdoc/(?:workload|record)/)|^.*/(?=(?:aten/src|c10/\w+|torch/csrc)/.)"
)
"""What lies above installed packages, Python's own modules, a checkout of torch or of this tool, and torch's C++ sources. The folder's name stays, as
``.../site-packages/torch/x.py``: by it ``evidence.attribution`` tells libraries from the person's own files."""
_SYSTEM = re.compile(r"^/(?:proc|sys|dev|usr|lib|lib64|etc|bin|sbin)(?=/|$)")
"""Folders every machine has; which library was loaded from them can be the whole finding."""
_DEEPEST = 3
"""Folders shown of a path that shares no project folder with any other."""


def folder_of_projects(texts: Iterable[str]) -> dict[str, str]:
    """The folder that all source files under one root share: ``{"/home/a": "/home/a/work/project/"}``."""
    folders: dict[str, set[str]] = {}
    for text in texts:
        for path in _paths(text):
            if path.endswith(".py") and not _LIBRARY.match(path) and not _SYSTEM.match(path):
                folders.setdefault(_root(path), set()).add(path.rpartition("/")[0] + "/")
    return {root: _common_folder(found) for root, found in folders.items()}


def users_in(texts: Iterable[str]) -> set[str]:
    """The names of home folders seen in ``texts``."""
    homes = (HOME.match(path) for text in texts for path in _paths(text))
    return {match["user"] for match in homes if match and match["user"]}


def cut_paths(text: str, projects: dict[str, str]) -> str:
    """Cut every absolute path in ``text``; ``projects`` comes from ``folder_of_projects``."""

    def cut(match: re.Match[str]) -> str:
        quote, path = match["quote"] or "", match["quoted"] or match["bare"]
        return f"{quote}{own_part(path, projects)}{quote}"

    return PATH.sub(cut, text)


def own_part(path: str, projects: dict[str, str]) -> str:
    """The part of one absolute path that may be shown."""
    plain = _forward(path)
    library = _LIBRARY.match(plain)
    if _SYSTEM.match(plain) and not library:
        return path
    if library:
        return f".../{plain[library.end() :]}"
    project = projects.get(_root(plain), "")
    if project and plain.startswith(project) and plain.endswith(".py"):
        parts = plain[len(project) :].split("/")
        return "/".join(parts[-_DEEPEST:] if project == f"{_root(plain)}/" else parts)
    home = HOME.match(plain)
    rest = plain[home.end() :] if home else plain
    return rest.rstrip("/").rpartition("/")[2] or ("~" if home else "/")


def _paths(text: str) -> list[str]:
    return [_forward(m["quoted"] or m["bare"]) for m in PATH.finditer(text)]


def _forward(path: str) -> str:
    return re.sub(r"[\\/]+", "/", path)


def _root(path: str) -> str:
    """The home folder, or else the first folder (``/workspace``, ``D:``)."""
    home = HOME.match(path)
    return home[0] if home else "/".join(path.split("/")[:2])


def _common_folder(folders: set[str]) -> str:
    return commonpath(sorted(folders)).rstrip("/") + "/"
