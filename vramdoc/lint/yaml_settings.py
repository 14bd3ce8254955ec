"""Where YAML sets an allocator variable. Commands in it are ``shell``'s to read.

Covers the forms of Kubernetes (``name:`` and ``value:``), Compose (``- X=v`` or ``X: v``), CI workflows and Slurm-like launchers: a
mapping from the variable, a pair of name and value, or a command.
"""

from __future__ import annotations

import re
from collections.abc import Iterator

import yaml

from vramdoc.lint.literals import HOLE
from vramdoc.lint.settings import VARIABLES, Reach, Setting
from vramdoc.lint.shell import shell_settings

_LOADER: type[yaml.SafeLoader] = getattr(yaml, "CSafeLoader", yaml.SafeLoader)
_TEMPLATE = re.compile(r"\$\{\{.*?\}\}|\{\{.*?\}\}|\$\{[^}]*\}|\$\([^)]*\)|\$\w+")


def yaml_settings(text: str) -> Iterator[Setting]:
    """Every setting in every document of a YAML file.

    Raises:
        yaml.YAMLError: it is not YAML (a template, for instance).
    """
    seen: set[int] = set()
    pending: list[yaml.Node | None] = list(yaml.compose_all(text, Loader=_LOADER))
    while pending:
        node = pending.pop()
        if node is None or id(node) in seen:
            continue
        seen.add(id(node))
        if isinstance(node, yaml.MappingNode):
            yield from _mapping(node)
            pending.extend(part for pair in node.value for part in pair)
        elif isinstance(node, yaml.SequenceNode):
            pending.extend(node.value)
        elif isinstance(node, yaml.ScalarNode):
            yield from _scalar(node)


def _mapping(node: yaml.MappingNode) -> Iterator[Setting]:
    pairs = {
        key.value: (key, value)
        for key, value in node.value
        if isinstance(key, yaml.ScalarNode) and isinstance(value, yaml.ScalarNode)
    }
    for name, (key, value) in pairs.items():
        if name in VARIABLES:
            yield _marked(name, value.value, key)
    for name_key in ("name", "key", "Name"):
        value_key = "Value" if name_key == "Name" else "value"
        if name_key in pairs and value_key in pairs and pairs[name_key][1].value in VARIABLES:
            _, value = pairs[value_key]
            yield _marked(pairs[name_key][1].value, value.value, pairs[value_key][0])


def _scalar(node: yaml.ScalarNode) -> Iterator[Setting]:
    text: str = node.value
    whole = re.fullmatch(rf"({'|'.join(VARIABLES)})=(.*)", text)
    if whole is not None and "\n" not in text:
        value = whole[2].strip()
        yield _marked(whole[1], value.strip("\"'"), node)
    elif any(name in text for name in VARIABLES):
        block = node.style in {"|", ">"}
        yield from shell_settings(text, first_line=node.start_mark.line + (2 if block else 1))


def _marked(name: str, value: str, node: yaml.Node) -> Setting:
    mark = node.start_mark
    return _at(name, _TEMPLATE.sub(HOLE, value), mark.line + 1, mark.column + 1)


def _at(name: str, value: str, line: int, column: int) -> Setting:
    return Setting(
        variable=name.upper(),
        value=value,
        line=line,
        column=column,
        end_line=line,
        reach=Reach.FILE,
    )
