"""Timeline: what torch had already done when each line of a file runs.

A walk through the module's statements in the order they run, into the functions of the file where they are called. Branches are
both taken; a branch that returns or raises does not go on. What other files did before is not known.
"""

from __future__ import annotations

import ast
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from enum import IntEnum
from typing import TYPE_CHECKING

from vramdoc.lint.devices import cuda, makes_tensor, starts_cuda
from vramdoc.lint.python_settings import settings_of
from vramdoc.lint.settings import Reach, Setting
from vramdoc.lint.source import DEFINITIONS, once_a_file

if TYPE_CHECKING:
    from vramdoc.lint.source import Source

IMPORTS_TORCH = frozenset({
    "torch", "torchvision", "torchaudio", "torchtext", "transformers", "diffusers", "accelerate", "peft", "trl", "timm", "lightning",
    "pytorch_lightning", "sentence_transformers", "vllm", "deepspeed", "bitsandbytes", "xformers", "open_clip",
})  # fmt: skip
"""Packages whose import imports torch."""


class Stage(IntEnum):
    """How far torch has come. Each includes those before."""

    NOTHING = 0
    IMPORTED = 1
    STARTED = 2


@dataclass(frozen=True, slots=True)
class Moment:
    """A stage, and the node that brought it about."""

    stage: Stage
    cause: ast.AST | None = None


_START = Moment(Stage.NOTHING)


@once_a_file
def moments(source: Source) -> Mapping[Setting, Moment]:
    """The earliest moment at which each setting of this process's environment takes place."""
    return _Walk(source).run()


class _Walk:
    def __init__(self, source: Source) -> None:
        self.source = source
        self.settings: dict[ast.AST, list[Setting]] = {}
        for setting in settings_of(source):
            if setting.reach is Reach.PROCESS and setting.node is not None:
                self.settings.setdefault(setting.node, []).append(setting)
        self.found: dict[Setting, Moment] = {}
        self.on_cuda_by_default = False
        """After torch.set_default_device("cuda"), which by itself starts nothing."""
        self.done: dict[tuple[ast.AST, Stage], Moment] = {}
        """Functions walked, by the stage they were entered at, with how they ended; guards against recursion."""

    def run(self) -> Mapping[Setting, Moment]:
        end = self.block(self.source.tree.body, _START) or _START
        for kind in DEFINITIONS:
            for function in self.source.nodes.get(kind, ()):
                if not any(entered is function for entered, _ in self.done):
                    self.enter(function, end)
        return self.found

    def block(self, statements: Iterable[ast.stmt], moment: Moment) -> Moment | None:
        """The moment after ``statements``; None where they never end."""
        for statement in statements:
            after = self.statement(statement, moment)
            if after is None:
                return None
            moment = after
        return moment

    def statement(self, node: ast.stmt, moment: Moment) -> Moment | None:
        if isinstance(node, (*DEFINITIONS, ast.ClassDef)):
            return self.block(node.body, moment) if isinstance(node, ast.ClassDef) else moment
        if isinstance(node, (ast.Import, ast.ImportFrom)):
            return self.imported(node, moment)
        if isinstance(node, ast.If):
            moment = self.expression(node.test, moment)
            return _later(self.block(node.body, moment), self.block(node.orelse, moment))
        if isinstance(node, ast.Try):
            tried = self.block(node.body, moment)
            ends = [self.block(handler.body, tried or moment) for handler in node.handlers]
            ends.append(self.block(node.orelse, tried) if tried else None)
            return self.block(node.finalbody, _later(*ends) or moment) if any(ends) else None
        for field in ("test", "iter", "items", "subject"):
            moment = self.headers(getattr(node, field, None), moment)
        nested = [getattr(node, field, []) for field in ("body", "orelse")]
        if any(nested):
            for block in nested:
                moment = self.block(block, moment) or moment
            return moment
        if isinstance(node, ast.Match):
            return _later(moment, *(self.block(case.body, moment) for case in node.cases))
        moment = self.expression(node, moment)
        return None if isinstance(node, (ast.Return, ast.Raise)) else moment

    def headers(self, header: object, moment: Moment) -> Moment:
        if isinstance(header, ast.AST):
            return self.expression(header, moment)
        for item in header if isinstance(header, list) else ():
            moment = self.expression(item, moment)
            context = item.context_expr
            enters = (
                isinstance(context, ast.Call)
                and self.source.qualname(context.func) == "torch.device"
            )
            if enters and cuda(self.source, context):
                moment = _advance(moment, Stage.STARTED, context)
        return moment

    def imported(self, node: ast.Import | ast.ImportFrom, moment: Moment) -> Moment:
        if isinstance(node, ast.ImportFrom):
            names = [node.module or ""] if not node.level else []
        else:
            names = [alias.name for alias in node.names]
        if any(name.partition(".")[0] in IMPORTS_TORCH for name in names):
            return _advance(moment, Stage.IMPORTED, node)
        return moment

    def expression(self, node: ast.AST, moment: Moment) -> Moment:
        """Calls within, innermost first, then the settings made here."""
        for inner in _inside_out(node):
            if isinstance(inner, ast.Call):
                for function in self.entered(inner):
                    moment = self.enter(function, moment)
                if self.source.qualname(inner.func) == "torch.set_default_device" and inner.args:
                    self.on_cuda_by_default = bool(cuda(self.source, inner.args[0]))
                by_default = self.on_cuda_by_default and makes_tensor(self.source, inner)
                if by_default or starts_cuda(self.source, inner):
                    moment = _advance(moment, Stage.STARTED, inner)
            for setting in self.settings.get(inner, ()):
                known = self.found.get(setting)
                if known is None or moment.stage < known.stage:
                    self.found[setting] = moment
        return moment

    def entered(self, call: ast.Call) -> Iterator[ast.AST]:
        yield from self.source.flow.called(call)
        yield from self.source.flow.constructed(call)
        callee = call.func
        if isinstance(callee, ast.Attribute):
            named = self.source.definitions.get(callee.attr, ())
            if len(named) == 1 and isinstance(self.source.parents[named[0]], ast.ClassDef):
                yield named[0]

    def enter(self, function: ast.AST, moment: Moment) -> Moment:
        key = (function, moment.stage)
        if key not in self.done:
            self.done[key] = moment
            assert isinstance(function, DEFINITIONS)
            ended = self.block(function.body, moment)
            # A return ends the walk of its block; what the function did before it is kept by the calls it walked.
            self.done[key] = _later(ended, self.reached(function, moment)) or moment
        return self.done[key]

    def reached(self, function: ast.AST, moment: Moment) -> Moment:
        """The moment at the function's ``return`` statements, roughly: CUDA counts as started if anything in it starts it."""
        for node in ast.walk(function):
            if isinstance(node, ast.Call) and starts_cuda(self.source, node):
                return _advance(moment, Stage.STARTED, node)
        return moment


def _inside_out(node: ast.AST) -> Iterator[ast.AST]:
    if isinstance(node, (ast.Lambda, *DEFINITIONS)):
        return
    for child in ast.iter_child_nodes(node):
        yield from _inside_out(child)
    yield node


def _advance(moment: Moment, stage: Stage, cause: ast.AST) -> Moment:
    return Moment(stage, cause) if stage > moment.stage else moment


def _later(*ends: Moment | None) -> Moment | None:
    known = [end for end in ends if end is not None]
    return max(known, key=lambda moment: moment.stage) if known else None
