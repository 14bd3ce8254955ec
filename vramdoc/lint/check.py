"""The engine: files in, violations out. Each file is read, indexed once, and shown to the rules whose words it contains.

One rule never sees another, and a file that cannot be read is a line in the result, never an exception.
"""

from __future__ import annotations

import ast
import multiprocessing
import os
import re
import sys
import threading
import warnings
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import ProcessPoolExecutor
from functools import partial
from pathlib import Path
from typing import TypeAlias

from vramdoc.allocator.releases import minor
from vramdoc.errors import UnreadableInput, UsageError
from vramdoc.lint.files import CannotRead, Found, Kind, discover, kind_by_content, read
from vramdoc.lint.finding import Finding
from vramdoc.lint.notebook import python_of
from vramdoc.lint.python_settings import settings_of
from vramdoc.lint.rule import Rule
from vramdoc.lint.rules import RULES
from vramdoc.lint.settings import ANYWHERE, SETTERS, VARIABLES, Setting, Target
from vramdoc.lint.shell import dockerfile_settings, script_settings, shell_settings
from vramdoc.lint.source import Source
from vramdoc.lint.suppress import ignored_lines, is_ignored
from vramdoc.lint.violation import LintResult, Unreadable, Violation

_ENOUGH_FOR_PROCESSES = 200
"""Files: below that, starting worker processes (about 0.2 s each) costs more than it saves."""
_CHUNK = 32
_IDENTIFIER = re.compile(r"[^\W\d]\w*")
_OURS = "{}.{}".format(*sys.version_info[:2])
Checked: TypeAlias = tuple[list[Violation], "Unreadable | None"]


def check_paths(
    paths: Sequence[str | Path],
    *,
    select: Sequence[str] = (),
    ignore: Sequence[str] = (),
    torch_release: str | None = None,
    platform: str | None = None,
) -> LintResult:
    """Check files and everything below folders.

    Args:
        paths: files or folders.
        select: ids (or prefixes of ids) of the rules to run; all where empty.
        ignore: ids (or prefixes) of rules not to run.
        torch_release: the release the code runs on, ``"2.9"``; the newest is meant where it is not known.
        platform: ``linux``, ``windows``, ``wsl``, ``rocm`` or ``macos``; ``linux`` where it is not known.

    Raises:
        UsageError: an id that no rule has, or a text that is no release.
        UnreadableInput: a path that does not exist.
    """
    rules = choose(select, ignore)
    if torch_release is not None:
        minor(torch_release)
    for path in map(Path, paths):
        if not os.path.lexists(path):
            raise UnreadableInput(
                f"{path}: no such file or folder", "name files or folders to check"
            )
    target = Target(release=torch_release, platform=platform)
    found = list(discover(map(Path, paths)))
    check = partial(check_file, rules=tuple(rule.id for rule in rules), target=target)
    violations: list[Violation] = []
    unreadable: list[Unreadable] = []
    for own, trouble in _mapped(check, found):
        violations.extend(own)
        if trouble is not None:
            unreadable.append(trouble)
    return LintResult(
        violations=tuple(sorted(violations, key=lambda v: v.order)),
        files_checked=len(found) - len(unreadable),
        unreadable=tuple(sorted(unreadable, key=lambda u: (u.path, u.line))),
    )


def _mapped(check: partial[Checked], found: Sequence[Found]) -> Iterator[Checked]:
    workers = min(os.cpu_count() or 1, len(found) // _ENOUGH_FOR_PROCESSES + 1)
    # Only a fork needs nothing of the caller's main module, and only a process of one thread forks safely.
    forks = "fork" in multiprocessing.get_all_start_methods() and threading.active_count() == 1
    if workers == 1 or not forks:
        yield from map(check, found)
        return
    with ProcessPoolExecutor(workers, multiprocessing.get_context("fork")) as pool:
        yield from pool.map(check, found, chunksize=_CHUNK)


def choose(select: Iterable[str], ignore: Iterable[str]) -> tuple[Rule, ...]:
    """The rules that are left of ``select`` less ``ignore``; each entry is an id or the beginning of some.

    Raises:
        UsageError: an entry that no rule's id begins with.
    """
    wanted = tuple(entry.upper() for entry in select)
    unwanted = tuple(entry.upper() for entry in ignore)
    for entry in (*wanted, *unwanted):
        if not any(rule.id.startswith(entry) for rule in RULES):
            raise UsageError(
                f"no lint rule {entry}", f"ids go from {RULES[0].id} to {RULES[-1].id}"
            )
    return tuple(
        rule
        for rule in RULES
        if (not wanted or rule.id.startswith(wanted))
        and not (unwanted and rule.id.startswith(unwanted))
    )


def check_file(found: Found, *, rules: tuple[str, ...], target: Target) -> Checked:
    """Violations in one file, or why it could not be read."""
    path = str(found.path)
    chosen = [rule for rule in RULES if rule.id in rules]
    try:
        text = read(found.path, found.kind)
        kind = found.kind or kind_by_content(text)
        return check_text(text, kind, path=path, rules=chosen, target=target), None
    except CannotRead as error:
        return [], Unreadable(path=path, reason=str(error))
    except SyntaxError as error:
        reason = f"not Python {_OURS}: {error.msg}" if error.msg else "not Python"
        return [], Unreadable(path=path, reason=reason, line=error.lineno or 0)
    except (RecursionError, MemoryError):
        return [], Unreadable(path=path, reason="nested too deeply to be read")
    except ValueError as error:  # a null byte, which ast.parse refuses before 3.12
        return [], Unreadable(path=path, reason=f"not Python: {error}")


def check_text(
    text: str,
    kind: Kind = Kind.PYTHON,
    *,
    path: str = "<text>",
    rules: Sequence[Rule] = RULES,
    target: Target = ANYWHERE,
) -> list[Violation]:
    """Violations in a text.

    Raises:
        SyntaxError: Python that does not parse.
        CannotRead: YAML that does not parse, a notebook that is none.
    """
    if kind not in {Kind.PYTHON, Kind.NOTEBOOK}:
        findings = _judged(rules, settings_in(text, kind), target)
    else:
        if kind is Kind.NOTEBOOK:
            text = python_of(text)
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # invalid escapes in somebody else's source
            tree = ast.parse(text)
        findings = _found(text, tree, rules, target)
    comments = ignored_lines(text)
    violations = {
        Violation(
            id=rule.id,
            level=finding.level or rule.level,
            path=path,
            line=finding.line,
            column=finding.column,
            end_line=finding.end_line,
            message=finding.message,
        )
        for rule, finding in findings
        if not is_ignored(finding, rule.id, comments)
    }
    return sorted(violations, key=lambda v: v.order)


def settings_in(text: str, kind: Kind) -> list[Setting]:
    """Settings of allocator variables in a file that is not Python.

    Raises:
        CannotRead: YAML that does not parse.
    """
    if not any(name in text for name in VARIABLES):
        return []
    if kind is not Kind.YAML:
        return list(_TEXT_READERS[kind](text))
    from yaml import YAMLError  # noqa: PLC0415 - only where a YAML file names a variable

    from vramdoc.lint.yaml_settings import yaml_settings  # noqa: PLC0415 - as above

    try:
        return list(yaml_settings(text))
    except YAMLError as error:
        raise CannotRead(f"not YAML: {' '.join(str(error).split())[:120]}") from None


_TEXT_READERS: Mapping[Kind, Callable[[str], Iterator[Setting]]] = {
    Kind.SHELL: script_settings,
    Kind.DOTENV: shell_settings,
    Kind.DOCKERFILE: dockerfile_settings,
}


def _found(
    text: str, tree: ast.Module, rules: Sequence[Rule], target: Target
) -> Iterator[tuple[Rule, Finding]]:
    """Show the file to each rule that has something to look for in it."""
    identifiers = set(_IDENTIFIER.findall(text))
    worth = [rule for rule in rules if rule.is_worth(text, identifiers)]
    if not worth:
        return
    source = Source(tree)
    if not identifiers.isdisjoint((*VARIABLES, *SETTERS)):
        yield from _judged(worth, settings_of(source), target)
    for rule in worth:
        for name, check in rule.calls.items():
            for call in source.calls.get(name, ()):
                yield from ((rule, finding) for finding in check(source, call))
        for kind, look in rule.nodes.items():
            for node in source.nodes.get(kind, ()):
                yield from ((rule, finding) for finding in look(source, node))
        for read_all in rule.sources:
            yield from ((rule, finding) for finding in read_all(source))


def _judged(
    rules: Sequence[Rule], settings: Sequence[Setting], target: Target
) -> Iterator[tuple[Rule, Finding]]:
    for rule in rules:
        for check in rule.settings:
            for setting in settings:
                yield from ((rule, finding) for finding in check(setting, target))
