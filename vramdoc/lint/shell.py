"""Where a shell script sets an allocator variable: ``export X=v``, ``X=v command``, ``env``, ``docker run -e``, ``setenv``, PowerShell.

Words are read as a POSIX shell reads them (quotes, backslashes, continued lines, comments); ``$NAME`` becomes a hole. What runs
when is not followed; only whether an assignment can reach any command at all. Dockerfiles are here too: their lines are shell words.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import replace

from vramdoc.lint.literals import HOLE
from vramdoc.lint.settings import VARIABLES, Reach, Setting

_NAMES = "|".join(VARIABLES)
_WORD = r"""(?:"(?:[^"\\]|\\.)*"|'[^']*'|\\.|[^\s;&|<>()"'\\])*"""
_ASSIGNED = re.compile(
    rf"""(?:^|(?<=[\s;&|("'{{,=])|(?<=-[eEDx]))(?P<name>{_NAMES})=(?P<value>{_WORD})"""
)
_POWERSHELL = re.compile(rf"\$env:(?P<name>{_NAMES})\s*=\s*(?P<value>{_WORD})", re.IGNORECASE)
_SETENV = re.compile(rf"\bsetenv\s+(?P<name>{_NAMES})\s+(?P<value>{_WORD})")
_FORMS = (_ASSIGNED, _POWERSHELL, _SETENV)
_EXPANSION = re.compile(r"\$\{[^}]*\}|\$\([^)]*\)|\$\w+|`[^`]*`|%\w+%")
_LEGACY_ENV = re.compile(rf"\s*ENV\s+(?P<name>{_NAMES})\s+(?P<value>[^=\s].*)", re.IGNORECASE)
_LAYER_EXPORT = re.compile(rf"\s*RUN\s.*\bexport\s+(?P<name>{_NAMES})={_WORD}\s*$", re.DOTALL)
_PLAIN = re.compile(rf"^\s*(?P<name>{_NAMES})={_WORD}\s*(?:$|;|#|&&)")


def shell_settings(text: str, first_line: int = 1) -> Iterator[Setting]:
    """Every setting in a shell script, or in one command."""
    for number, line in logical_lines(text):
        code = without_comment(line)
        for match in (m for pattern in _FORMS for m in pattern.finditer(code)):
            name = match["name"].upper()
            skipped = code[: match.start("name")].count("\n")
            begins = code.rfind("\n", 0, match.start("name")) + 1
            yield Setting(
                variable=name,
                value=unquote(match["value"]),
                line=first_line + number - 1 + skipped,
                column=match.start("name") - begins + 1,
                end_line=first_line + number - 1 + code.count("\n"),
                reach=Reach.FILE,
            )


def logical_lines(text: str) -> Iterator[tuple[int, str]]:
    """Lines with their number; those ended by a backslash are joined with the next, the newline kept."""
    number, pending, start = 0, "", 1
    for line in text.splitlines():
        number += 1
        if not pending:
            start = number
        pending += line
        if line.endswith("\\") and not line.endswith("\\\\"):
            pending = pending[:-1] + " \n"
            continue
        yield start, pending
        pending = ""
    if pending:
        yield start, pending


def without_comment(line: str) -> str:
    """The line up to a ``#`` that starts a comment: at the start of a word, outside quotes. ``#SBATCH`` lines are directives."""
    if re.match(r"\s*#(SBATCH|PBS|BSUB)\b", line):
        return line
    quote = ""
    for index, char in enumerate(line):
        if quote:
            quote = "" if char == quote and line[index - 1] != "\\" else quote
        elif char in "\"'":
            quote = char
        elif char == "#" and (index == 0 or line[index - 1].isspace()):
            return line[:index]
    return line


def unquote(word: str) -> str:
    """A shell word's value: quotes removed, expansions replaced by a hole."""
    parts = re.findall(r""""(?:[^"\\]|\\.)*"|'[^']*'|\\.|[^"'\\]+""", word)
    value = ""
    for part in parts:
        if part.startswith("'"):
            value += part[1:-1]
        else:
            bare = part[1:-1] if part.startswith('"') else part
            value += _EXPANSION.sub(HOLE, re.sub(r"\\(.)", r"\1", bare))
    return value


def script_settings(text: str) -> Iterator[Setting]:
    """Settings of a script; a plain assignment that no command sees is marked as reaching nothing."""
    unexported = set(_unexported(text))
    for setting in shell_settings(text):
        lost = (setting.line, setting.variable) in unexported
        yield replace(setting, reach=Reach.UNEXPORTED) if lost else setting


def _unexported(text: str) -> Iterator[tuple[int, str]]:
    """Line and name of assignments that are not exported anywhere in a script without ``set -a``."""
    exported: set[str] = set()
    plain: list[tuple[int, str]] = []
    for number, line in logical_lines(text):
        code = without_comment(line)
        if re.search(r"\bset\s+(-\w*a|-o\s+allexport)", code):
            return
        exported.update(
            re.findall(
                rf"\b(?:export|declare\s+-\w*x\w*|typeset\s+-x)\b[^;&|]*?\b({_NAMES})\b", code
            )
        )
        match = _PLAIN.match(code)
        if match is not None:
            plain.append((number, match["name"]))
    yield from (found for found in plain if found[1] not in exported)


def dockerfile_settings(text: str) -> Iterator[Setting]:
    """``ENV``, ``ARG`` and what ``RUN`` lines hand to commands; an export that ends its ``RUN`` line reaches nothing."""
    for number, line in logical_lines(text):
        code = without_comment(line)
        ends_with_export = _LAYER_EXPORT.match(code) is not None
        for setting in shell_settings(code, first_line=number):
            yield replace(setting, reach=Reach.LAYER) if ends_with_export else setting
        legacy = _LEGACY_ENV.match(code)
        if legacy is not None:
            yield Setting(
                variable=legacy["name"],
                value=unquote(legacy["value"].strip()),
                line=number,
                column=legacy.start("name") + 1,
                end_line=number,
                reach=Reach.FILE,
            )
