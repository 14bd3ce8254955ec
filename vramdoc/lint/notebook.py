"""Jupyter notebooks as Python: the code cells, each line where it stands in the ``.ipynb`` file.

So a finding's line number is the file's own, which is where editors and pull requests show it. Lines for IPython (``%magic``, ``!command``,
``help?``) become ``pass``, cells of another language (``%%bash``) vanish. Knows the layout that Jupyter writes, one string a line; a
notebook laid out otherwise is not read.
"""

from __future__ import annotations

import ast
import json
import re
import warnings
from collections.abc import Iterator
from typing import Any

from vramdoc.lint.files import CannotRead

_IPYTHON = re.compile(r"^(\s*)(?:[%!?]|[\w., ]+=\s*[%!]|[\w.]+\?{1,2}\s*$)")
_PYTHON_CELLS = frozenset(
    {"%%time", "%%timeit", "%%capture", "%%prun", "%%python", "%%python3", "%%debug"}
)


def python_of(text: str) -> str:
    """The Python of a notebook, line for line below each other as in the file.

    Raises:
        CannotRead: no notebook, a notebook of another language, or one whose cells are not laid out line by line.
    """
    try:
        notebook = json.loads(text)
        language = notebook.get("metadata", {}).get("language_info", {}).get("name", "python")
        cells = [(cell["cell_type"], _lines(cell["source"])) for cell in notebook["cells"]]
    except (ValueError, KeyError, TypeError, AttributeError, RecursionError):
        raise CannotRead("not a notebook of format 4") from None
    if language != "python":
        raise CannotRead(f"a notebook in {language}")
    physical = text.splitlines()
    python = [""] * len(physical)
    for (kind, lines), places in zip(cells, _places(physical, cells), strict=True):
        if kind == "code":
            for place, line in zip(places, _plain(lines), strict=True):
                python[place] = line
    return "\n".join(python) + "\n"


def _lines(source: Any) -> list[str]:
    joined = source if isinstance(source, str) else "".join(source)
    return joined.splitlines()


def _places(physical: list[str], cells: list[tuple[str, list[str]]]) -> Iterator[list[int]]:
    """For each cell the places of its lines in the file."""
    here = 0
    for _, lines in cells:
        while here < len(physical) and not physical[here].lstrip().startswith('"source":'):
            here += 1
        places = list(range(here + 1, here + 1 + len(lines)))
        written = [_decoded(physical[place]) for place in places if place < len(physical)]
        if written != lines:
            raise CannotRead("a notebook not laid out line by line, as Jupyter saves it")
        yield places
        here += 1 + len(lines)


def _decoded(line: str) -> str | None:
    """The text of a JSON string that stands alone in its line."""
    try:
        value = json.loads(line.strip().removesuffix(","))
    except ValueError:
        return None
    return value.removesuffix("\n") if isinstance(value, str) else None


def _plain(lines: list[str]) -> list[str]:
    """A cell without what only IPython understands."""
    first = next((line for line in lines if line.strip()), "")
    if first.startswith("%%") and first.split()[0] not in _PYTHON_CELLS:
        return [""] * len(lines)
    if _is_python(lines):
        return lines
    return [f"{match[1]}pass" if (match := _IPYTHON.match(line)) else line for line in lines]


def _is_python(lines: list[str]) -> bool:
    """Whether a cell is Python as it stands: then a line that begins with ``%`` goes on with a division."""
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # invalid escapes in somebody else's cell
            ast.parse("\n".join(lines))
    except (SyntaxError, ValueError, RecursionError, MemoryError):
        return False
    return True
