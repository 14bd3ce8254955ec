"""What we prescribe reaches the reader as written: the privacy filter takes nothing out of our own commands."""

from __future__ import annotations

import pytest

from vramdoc.prescribe.catalogue import CATALOGUE
from vramdoc.prescribe.engines import ENGINE_COMMANDS
from vramdoc.prescribe.snippets import environment_snippets
from vramdoc.report.scrub import Scrubber


@pytest.mark.parametrize("remedy", CATALOGUE.values(), ids=lambda r: r.id)
def test_a_remedy_is_shown_as_written(remedy):
    texts = [remedy.title, remedy.change, remedy.python, remedy.command_line, remedy.check]
    texts += environment_snippets({**remedy.environment, "PYTORCH_CUDA_ALLOC_CONF": "a:1"}).values()
    assert list(map(Scrubber(texts=texts), texts)) == texts


def test_an_engines_command_is_shown_as_written():
    texts = [line for lines in ENGINE_COMMANDS.values() for line in lines.values()]
    assert list(map(Scrubber(texts=texts), texts)) == texts
