"""What each format writes for each sample, kept as files. ``UPDATE_GOLDEN=1 pytest tests/report/test_golden.py`` rewrites them.

The page is kept without its scripts and styles, which change with every edit of them.
"""

from __future__ import annotations

import os
import re
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.report.samples import SAMPLES
from vramdoc.report.contents import Report
from vramdoc.report.privacy import redact
from vramdoc.report.to_github import render_github
from vramdoc.report.to_html import render_html
from vramdoc.report.to_json import render_json
from vramdoc.report.to_markdown import render_markdown
from vramdoc.report.to_terminal import render_terminal

GOLDEN = Path(__file__).parent / "golden"


def page_without_scripts(report: Report) -> str:
    """The page's own words."""
    html = re.sub(
        r"<(script|style)[^>]*>.*?</\1>", r"<\1></\1>", render_html(report), flags=re.DOTALL
    )
    return re.sub(r"sha256-[\w+/=]+", "sha256-", html)


FORMS: dict[str, Callable[[Report], str]] = {
    "80.txt": render_terminal,
    "160-verbose.txt": lambda report: render_terminal(report, width=160, verbose=True),
    "ascii.txt": lambda report: render_terminal(report, ascii_only=True),
    "colour.txt": lambda report: render_terminal(report, colour=True),
    "md": render_markdown,
    "json": render_json,
    "github.txt": render_github,
    "html": page_without_scripts,
}


@pytest.mark.parametrize("name", sorted(SAMPLES.keys() - {"huge"}))
@pytest.mark.parametrize("form", FORMS)
def test_output_is_as_kept(name: str, form: str) -> None:
    text = FORMS[form](redact(SAMPLES[name]()))
    path = GOLDEN / f"{name}.{form}"
    if os.environ.get("UPDATE_GOLDEN"):
        GOLDEN.mkdir(exist_ok=True)
        path.write_text(text, encoding="utf-8", newline="\n")
    assert text == path.read_bytes().decode("utf-8")
